"""Functions that have one form for CPUs and another for accelerators, and how products round there.

`lax.platform_dependent` traces every form, and the compiler drops those of other platforms: right
where the platform is not known yet, as in an export for several. Where it is known, `only` leaves
the others out.

With `only(platform, f, emulated=True)` the CPU runs what that platform would execute: the forms of
accelerators, and products of float32 whose operands are rounded as its matrix units do by default.
"""

import os
from collections.abc import Callable
from functools import wraps

import jax
from jax import lax

from istanas_jax.devices.precisions import MANTISSA_BITS

ACT_AS = "ISTANAS_ACT_AS"  # environment variable: the platform whose programs the devices run
# What is traced for one value is not used for another.
_known = jax.make_user_context(default_value=None)
_emulated = jax.make_user_context(default_value=False)


def by_platform(*args, default: Callable, **forms: Callable):
    """The form of the platform, such as `cpu` or `tpu`, called with `args`; or else `default`."""
    if _known.value is None:
        return lax.platform_dependent(*args, default=default, **forms)
    return forms.get(_known.value, default)(*args)


def only(
    platform: str, f: Callable, *, emulated: bool = False, precision: str = "default"
) -> Callable:
    """Make `f` be traced for this platform alone.

    Args:
      emulated: the program is for another platform, which is to round as this one does.
      precision: of matrix products and convolutions, one of `precisions.PRECISIONS`.
    """

    @wraps(f)
    def known(*args):
        # None, not "default", so that a caller's own setting stays.
        chosen = None if precision == "default" else precision
        chosen = chosen or jax.config.jax_default_matmul_precision
        with _known(platform), _emulated(emulated), jax.default_matmul_precision(chosen):
            return f(*args)

    return known


def acting_platform() -> str | None:
    """The platform that the environment tells the devices to act as; None: as what they are."""
    name = os.environ.get(ACT_AS) or None
    if name is not None and name not in MANTISSA_BITS:
        raise ValueError(f"{ACT_AS} is {name}, it must be one of {', '.join(MANTISSA_BITS)}")
    return name


def product(f: Callable[..., jax.Array], *operands: jax.Array) -> jax.Array:
    """`f(*operands)`, a matrix product or convolution, with operands as the platform rounds them.

    A platform rounds by itself; only where it is emulated is there something to do. Of gradients,
    which are products too, all operands are rounded as well.
    """
    bits = MANTISSA_BITS.get(_known.value) if _emulated.value else None
    if bits is None or jax.config.jax_default_matmul_precision not in (None, "default"):
        return f(*operands)

    def rounded(x):
        return lax.reduce_precision(x, exponent_bits=8, mantissa_bits=bits)

    def straight(x):  # the gradient passes through
        return x + lax.stop_gradient(rounded(x) - x)

    @jax.custom_vjp
    def gradient_rounded(y):
        return y

    gradient_rounded.defvjp(lambda y: (y, None), lambda _, g: (rounded(g),))
    return gradient_rounded(f(*map(straight, operands)))
