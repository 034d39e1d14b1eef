"""Strictness and speed for every test; pyproject.toml turns warnings into errors."""

import os
import time
from pathlib import Path

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)
# Programs run a few times only: most of the time would go into optimising them, and into
# compiling again what another test, or an earlier run of the tests, has compiled.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
COMPILED = CACHE / "istanas_jax" / "tests"
DAYS_KEPT = 7
jax.config.update("jax_compilation_cache_dir", str(COMPILED))
ROOT = Path(__file__).parent.parent
# Files that compile most, started first so that two processes end at about the same time.
LONGEST = (
    "hosts",
    "supernet",
    "two_stage",
    "methods_resume",
    "parity",
    "one_stage",
    "kill_and_resume",
)


def pytest_configure(config) -> None:
    """Once, not in each of several processes: forget what was compiled long ago."""
    if not hasattr(config, "workerinput"):
        for file in COMPILED.glob("*"):
            if file.stat().st_mtime < time.time() - 86_400 * DAYS_KEPT:
                file.unlink()


def pytest_collection_modifyitems(items) -> None:
    names = [f"test_{name}.py" for name in LONGEST]
    items.sort(key=lambda item: names.index(n) if (n := item.path.name) in names else len(names))


@pytest.fixture
def shared() -> Path:
    """The folder of reference data beside the checkout; tests that need it skip without it."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"reference data is not there: {folder.name}/ beside the checkout")
    return folder


@pytest.fixture(scope="session")
def environment():
    """For processes: programs are compiled once, by the first, and without much optimisation."""
    return os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(COMPILED),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
        "PYTHONPATH": str(ROOT),
    }
