"""Strictness and speed for every test; pyproject.toml turns warnings into errors."""

import gc
import os
import tempfile
from pathlib import Path

import jax
import pytest
from places import ROOT, SHARED

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)
# Programs run a few times only: most of the time would go into optimising them, and into
# compiling again what another test has compiled.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
COMPILED = tempfile.TemporaryDirectory()
jax.config.update("jax_compilation_cache_dir", COMPILED.name)
# Files that compile most, started first so that two processes end at about the same time.
LONGEST = (
    "hosts",
    "supernet",
    "two_stage",
    "methods_resume",
    "parity",
    "one_stage",
    "kill_and_resume",
    "torture",
    "docs_commands",
)


def pytest_collection_modifyitems(items) -> None:
    names = [f"test_{name}.py" for name in LONGEST]
    items.sort(key=lambda item: names.index(n) if (n := item.path.name) in names else len(names))


@pytest.fixture(scope="module", autouse=True)
def _given_back():
    """What a file compiled: Linux allows a process 65,530 memory maps."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def shared() -> Path:
    """The folder of reference data beside the checkout; tests that need it skip without it."""
    if not SHARED.is_dir():
        pytest.skip(f"reference data is not there: {SHARED.name}/ beside the checkout")
    return SHARED


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """For processes: programs are compiled once, by the first, and without much optimisation."""
    return os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
        "PYTHONPATH": str(ROOT),
    }
