"""ISTA-NAS in JAX and Flax: neural architecture search as sparse coding.

    import istanas_jax as ista

    run = ista.run_schedule("configs/digits.py", "runs/digits")

`istanas_jax.api` says what else there is.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from istanas_jax.devices.xla_settings import correct_sums, enough_threads

if TYPE_CHECKING:
    from istanas_jax.api import (
        Genotype,
        Node,
        Run,
        draw_cell,
        load_config,
        load_run,
        recover_z,
        run_retrain,
        run_schedule,
        run_search,
    )

__all__ = [
    "Genotype",
    "Node",
    "Run",
    "draw_cell",
    "load_config",
    "load_run",
    "recover_z",
    "run_retrain",
    "run_schedule",
    "run_search",
]

__version__ = "0.1.0"

correct_sums()
enough_threads()


def __getattr__(name: str):
    """The calls of `api`, loaded when they are wanted: `istanas --help` should not wait for jax."""
    if name in __all__:
        return getattr(import_module("istanas_jax.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
