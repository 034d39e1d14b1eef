"""The shifted form of windows on the CPU: what a window reads, and its transpose."""

from collections.abc import Callable, Sequence
from functools import cache, reduce
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array, Float

from istanas_jax.devices.platforms import by_platform


def check_odd(*size: int) -> None:
    if any(k % 2 == 0 for k in size):
        raise ValueError(f"a centred window has an odd size, got {size}")


def alone(f: Callable[..., Array], *args: Array, **static: Any) -> Array:
    """Compute `f(*args, **static)` once and store it, however many operations use the result.

    XLA's CPU backend fuses k * k taps into every user of their sum (two in batch norm's gradient:
    7.4 ms where 3.5 do). It drops optimization barriers before it fuses, but keeps calls.

    A function of a module, which depends on nothing but its arguments, is traced once for equal
    shapes.
    """
    return set_xla_metadata(_program(f, tuple(static))(*args, **static), inlineable="false")


@cache
def _program(f: Callable[..., Array], static: tuple[str, ...]) -> Callable[..., Array]:
    return jax.jit(f, static_argnames=static)


@jax.custom_vjp
def fence(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Store x and its gradient, so that XLA does not fuse them into each of their users.

    A node's state has up to four users and its gradient as many sources; the search step of a
    static net takes a fifth less time with a fence there.
    """
    return by_platform(x, cpu=_stored, default=lambda x: x)


def _stored(x):
    return alone(_same, x)


def _same(x):
    return x


fence.defvjp(
    lambda x: (fence(x), None),
    lambda _, g: (by_platform(g, cpu=_stored, default=lambda g: g),),
)


def pad_image(x: Array, size: tuple[int, int], dilation: int, fill: float = 0.0) -> Array:
    rows, columns = (dilation * (k - 1) // 2 for k in size)
    pad = [(0, 0, 0), (rows, rows, 0), (columns, columns, 0), (0, 0, 0)]
    return lax.pad(x, jnp.asarray(fill, x.dtype), pad)


# The bodies of kernels have hundreds of operations, and tracing is what a start waits for: here and
# in the files beside, they are those of `lax`, which take a quarter of the time that `x * y` and
# `x[i:j]` take to trace.


def taps(padded: Array, size: tuple[int, int], stride: int, dilation: int) -> list[Array]:
    """The shifted inputs of a centred window, (B, Ho, 1, Wo * C) or, strided, (B, Ho, Wo, C)."""
    batch, *_, c = padded.shape
    rows, columns = (
        (n - dilation * (k - 1) - 1) // stride + 1
        for n, k in zip(padded.shape[1:3], size, strict=True)
    )
    offsets = _offsets(size, dilation)
    if stride == 1:
        flat = lax.reshape(padded, (*padded.shape[:2], 1, padded.shape[2] * c))
        return [
            lax.slice(flat, (0, i, 0, j * c), (batch, i + rows, 1, (j + columns) * c))
            for i, j in offsets
        ]
    height, width = stride * (rows - 1) + 1, stride * (columns - 1) + 1
    return [
        lax.slice(padded, (0, i, j, 0), (batch, i + height, j + width, c), (1, stride, stride, 1))
        for i, j in offsets
    ]


def _offsets(size: tuple[int, int], dilation: int) -> list[tuple[int, int]]:
    """Row and column of each tap of a window."""
    return list(product(*(range(0, k * dilation, dilation) for k in size)))


def total(terms: Sequence[Array]) -> Array:
    """The sum of arrays of one shape, in their order."""
    return reduce(lax.add, terms)


def scatter(
    image: tuple[int, int],
    size: tuple[int, int],
    stride: int,
    dilation: int,
    outputs: Sequence[Float[Array, "B Ho Wo C"]],
    part: Callable[..., Array],
    *others: Array,
) -> Float[Array, "B H W C"]:
    """Transpose of `taps`: a pixel's sum of `part(tap, *outputs, *others)` over its windows.

    Pixel stride * u + phase is tap i of window u - i * dilation // stride if the phases agree.
    `part` is a function of a module, see `alone`.
    """
    grid = _grid(image, size, stride, dilation)
    out = outputs[0].shape[1:3]
    pad = [(r - f, f + n - o, 0) for r, f, n, o in zip(*grid, out, strict=True)]
    pad = [(0, 0, 0), *pad, (0, 0, 0)]
    padded = [lax.pad(y, jnp.zeros((), y.dtype), pad) for y in outputs]
    shapes = {"image": image, "size": size, "stride": stride, "dilation": dilation}
    return alone(_gather, *padded, *others, **shapes, num_outputs=len(padded), part=part)


def _grid(image, size, stride, dilation) -> tuple[list[int], list[int], list[int]]:
    """Windows that a pixel's own follows by, the first that sees the image, and their number."""
    reach = [dilation * (k - 1) // stride for k in size]
    edge = _edge(size, dilation)
    first = [e // stride for e in edge]
    count = [-(-(e + n) // stride) - f for e, n, f in zip(edge, image, first, strict=True)]
    return reach, first, count


def _edge(size, dilation) -> list[int]:
    """The image's place in the padded one."""
    return [dilation * (k - 1) // 2 for k in size]


def _gather(*arrays, image, size, stride, dilation, num_outputs, part):
    padded, others = arrays[:num_outputs], arrays[num_outputs:]
    reach, first, count = _grid(image, size, stride, dilation)
    batch, *_, c = padded[0].shape
    flat = [lax.reshape(y, (batch, y.shape[1], y.shape[2] * c)) for y in padded]
    phases: dict[tuple[int, ...], list[Array]] = {at: [] for at in product(range(stride), repeat=2)}
    for tap, offset in enumerate(_offsets(size, dilation)):
        i, j = (r - o // stride for r, o in zip(reach, offset, strict=True))
        slices = [
            lax.slice(y, (0, i, j * c), (batch, i + count[0], (j + count[1]) * c)) for y in flat
        ]
        phases[tuple(o % stride for o in offset)].append(part(tap, *slices, *others))
    if stride == 1:
        return lax.reshape(total(phases[0, 0]), (batch, *image, c))
    plane = (batch, *count, c)
    planes = [
        lax.reshape(total(p), plane) if p else jnp.zeros(plane, padded[0].dtype)
        for p in phases.values()
    ]
    grid = [jnp.stack(planes[n : n + stride], 3) for n in range(0, len(planes), stride)]
    whole = jnp.stack(grid, 2).reshape(batch, stride * count[0], stride * count[1], c)
    top, left = (e - stride * f for e, f in zip(_edge(size, dilation), first, strict=True))
    return whole[:, top : top + image[0], left : left + image[1]]


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
