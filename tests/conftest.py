"""Strictness and speed for every test; pyproject.toml turns warnings into errors."""

import gc
import os
import tempfile
from pathlib import Path

import jax
import pytest
from places import ROOT, SHARED

from istanas_jax.devices import xla_settings
from istanas_jax.runs import program_cache

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)
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
    "two_stage",
    "parity",
    "one_stage",
    "kill_and_resume",
    "torture",
    "docs_commands",
)


def pytest_collection_modifyitems(items) -> None:
    names = [f"test_{name}.py" for name in LONGEST]
    items.sort(key=lambda item: names.index(n) if (n := item.path.name) in names else len(names))


def pytest_collection_finish() -> None:
    """Modules stay: the collector, which traces start often, need not look at them again."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="module", autouse=True)
def _given_back():
    """Drop the programs of a file: Linux allows a process 65,530 memory maps."""
    yield
    jax.clear_caches()
    gc.collect()


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
