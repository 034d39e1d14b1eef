"""Functions that have one form for CPUs and another for accelerators.

`lax.platform_dependent` traces every form, and the compiler drops those of other platforms: right
where the platform is not known yet, as in an export for several. Where it is known, `only` leaves
the others out.
"""

from collections.abc import Callable
from functools import wraps

import jax
from jax import lax

_known = jax.make_user_context(default_value=None)  # what is traced for one is not used for another


def by_platform(*args, cpu: Callable, default: Callable):
    """`cpu(*args)` on CPUs, `default(*args)` elsewhere."""
    if _known.value is None:
        return lax.platform_dependent(*args, cpu=cpu, default=default)
    return (cpu if _known.value == "cpu" else default)(*args)


def only(platform: str, f: Callable) -> Callable:
    """Make `f` be traced for this platform alone."""

    @wraps(f)
    def known(*args):
        with _known(platform):
            return f(*args)

    return known
