"""The shifted form of windows on the CPU: what a window reads, and its transpose."""

from collections.abc import Callable, Sequence
from itertools import product

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array, Float

from istanas_jax.devices.platforms import by_platform


def check_odd(*size: int) -> None:
    if any(k % 2 == 0 for k in size):
        raise ValueError(f"a centred window has an odd size, got {size}")


def alone(f: Callable[..., Array], *args: Array) -> Array:
    """Compute `f(*args)` once and store it, however many operations use the result.

    XLA's CPU backend fuses k * k taps into every user of their sum (two in batch norm's gradient:
    7.4 ms where 3.5 do). It drops optimization barriers before it fuses, but keeps calls.
    """
    return set_xla_metadata(jax.jit(f)(*args), inlineable="false")


@jax.custom_vjp
def fence(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Store x and its gradient, so that XLA does not fuse them into each of their users.

    A node's state has up to four users and its gradient as many sources; the search step of a
    static net takes a fifth less time with a fence there.
    """
    return by_platform(x, cpu=_stored, default=lambda x: x)


def _stored(x):
    return alone(lambda x: x, x)


fence.defvjp(
    lambda x: (fence(x), None),
    lambda _, g: (by_platform(g, cpu=_stored, default=lambda g: g),),
)


def pad_image(x: Array, size: tuple[int, int], dilation: int, fill: float = 0.0) -> Array:
    rows, columns = (dilation * (k - 1) // 2 for k in size)
    pad = [(0, 0, 0), (rows, rows, 0), (columns, columns, 0), (0, 0, 0)]
    return lax.pad(x, jnp.asarray(fill, x.dtype), pad)


def taps(padded: Array, size: tuple[int, int], stride: int, dilation: int) -> list[Array]:
    """The shifted inputs of a centred window, (B, Ho, 1, Wo * C) or, strided, (B, Ho, Wo, C)."""
    c = padded.shape[-1]
    rows, columns = (
        (n - dilation * (k - 1) - 1) // stride + 1
        for n, k in zip(padded.shape[1:3], size, strict=True)
    )
    offsets = product(*(range(0, k * dilation, dilation) for k in size))
    if stride == 1:
        flat = padded.reshape(*padded.shape[:2], 1, -1)
        return [flat[:, i : i + rows, :, j * c : (j + columns) * c] for i, j in offsets]
    height, width = stride * (rows - 1) + 1, stride * (columns - 1) + 1
    return [padded[:, i : i + height : stride, j : j + width : stride] for i, j in offsets]


def scatter(
    image: tuple[int, int],
    size: tuple[int, int],
    stride: int,
    dilation: int,
    outputs: Sequence[Float[Array, "B Ho Wo C"]],
    part: Callable[..., Array],
) -> Float[Array, "B H W C"]:
    """Transpose of `taps`: a pixel's sum of `part(tap, *outputs)` over the windows it is in.

    Pixel stride * u + phase is tap i of window u - i * dilation // stride if the phases agree.
    """
    batch, *out, c = outputs[0].shape
    reach = [dilation * (k - 1) // stride for k in size]
    edge = [dilation * (k - 1) // 2 for k in size]  # the image's place in the padded one
    first = [e // stride for e in edge]
    count = [-(-(e + n) // stride) - f for e, n, f in zip(edge, image, first, strict=True)]
    pad = [(r - f, f + n - o, 0) for r, f, n, o in zip(reach, first, count, out, strict=True)]
    pad = [(0, 0, 0), *pad, (0, 0, 0)]
    padded = [lax.pad(y, jnp.zeros((), y.dtype), pad) for y in outputs]
    top, left = (e - stride * f for e, f in zip(edge, first, strict=True))

    def gather(*padded):
        flat = [y.reshape(batch, y.shape[1], -1) for y in padded]
        phases = dict.fromkeys(product(range(stride), repeat=2), 0)
        for tap, offset in enumerate(product(*(range(0, k * dilation, dilation) for k in size))):
            i, j = (r - o // stride for r, o in zip(reach, offset, strict=True))
            slices = [y[:, i : i + count[0], j * c : (j + count[1]) * c] for y in flat]
            phases[tuple(o % stride for o in offset)] += part(tap, *slices)
        if stride == 1:
            return phases[0, 0].reshape(batch, *image, c)
        planes = [
            jnp.broadcast_to(p, slices[0].shape).reshape(batch, *count, c) for p in phases.values()
        ]
        grid = [jnp.stack(planes[n : n + stride], 3) for n in range(0, len(planes), stride)]
        whole = jnp.stack(grid, 2).reshape(batch, stride * count[0], stride * count[1], c)
        return whole[:, top : top + image[0], left : left + image[1]]

    return alone(gather, *padded)


def widen(x: Array) -> Array:
    """Cast to float32 or wider, in which sums are taken."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def output_shape(x: Array, stride: int) -> tuple[int, int, int, int]:
    return x.shape[0], -(-x.shape[1] // stride), -(-x.shape[2] // stride), x.shape[3]


def per_platform(native, shifted, shifted_vjp):
    """`native` with its own gradient or, on the CPU, `shifted` with `shifted_vjp(*inputs, g)`."""

    def native_vjp(*inputs_and_g):
        *inputs, g = inputs_and_g
        return tuple(jax.vjp(native, *inputs)[1](g))

    def forward(*inputs):
        return by_platform(*inputs, cpu=shifted, default=native)

    def backward(inputs, g):
        return by_platform(*inputs, g, cpu=shifted_vjp, default=native_vjp)

    f = jax.custom_vjp(forward)
    # Not f itself: inside a scan jax then mixes up what f keeps when it differentiates twice.
    f.defvjp(lambda *inputs: (forward(*inputs), inputs), backward)
    return f
