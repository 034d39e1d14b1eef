"""Strictness and speed for every test; pyproject.toml turns warnings into errors."""

import gc
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import pytest
from places import ROOT, SHARED

from istanas_jax.devices import xla_settings
from istanas_jax.runs import program_cache, session

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)
xla_settings.enough_threads(2)
# Programs run a few times only: most of the time would go into optimising them. The other settings
# are those that commands add, so that tests and the processes they start compile the same programs.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
xla_settings.add(*xla_settings.WIDE_VECTORS)
# Compiled once by whichever process comes first: pytest's processes inherit the folder from the one
# that starts them, and commands from both. One of the user's own serves the next session too.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    COMPILED = tempfile.TemporaryDirectory(prefix="istanas-compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
program_cache.keep()  # whole files only, since several processes write them
# Files that take longest, started first so that two processes end at about the same time.
LONGEST = (
    "hosts",
    "supernet",
    "methods_resume",
    "docs_commands",
    "parity",
    "two_stage",
    "torture",
    "kill_and_resume",
    "algorithms",
    "one_stage",
    "api",
    "cli",
)


def pytest_collection_modifyitems(items) -> None:
    names = [f"test_{name}.py" for name in LONGEST]
    items.sort(key=lambda item: names.index(n) if (n := item.path.name) in names else len(names))


def pytest_collection_finish() -> None:
    """Modules stay: the collector, which traces start often, need not look at them again."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@contextmanager
def _few_programs() -> Iterator[None]:
    """At the end drop the programs in memory if they are many: Linux allows 65,530 memory maps."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="module", autouse=True)
def _programs_of_a_file() -> Iterator[None]:
    with _few_programs():
        yield


@pytest.fixture(scope="session", autouse=True)
def _programs_of_a_run() -> Iterator[None]:
    """A run drops all of its programs; here the next one would compile most of them again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "_programs", _few_programs)
        yield


@pytest.fixture
def shared() -> Path:
    """The folder of reference data beside the checkout; tests that need it skip without it."""
    if not SHARED.is_dir():
        pytest.skip(f"reference data is not there: {SHARED.name}/ beside the checkout")
    return SHARED


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """Variables for processes; with glibc's among them, a command starts once and not twice."""
    return os.environ | {"PYTHONPATH": str(ROOT), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
