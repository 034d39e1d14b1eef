"""Depthwise convolution, pooling and sums per channel, each in the form fast on its platform.

TPU and GPU get the native primitives. XLA's CPU backend runs a grouped convolution 50 to 150
times slower than the same sum of shifted multiply-adds (its gradients 15 times), and max-pool's
select-and-scatter 10 to 27 times slower than a comparison of shifted windows, so there (and only
there) the shifted forms below are used. What makes them fast:

- The padded array is written once, in one pass with what computes it (ReLU), and every tap is a
  slice of it. With stride 1, width and channels are one axis: the inner loop is a whole row.
- The gradient of the input gathers from the padded cotangent, which is sliced without stride:
  one loop for each phase of the stride, then interleaved.
- Sums per channel, as in the gradient of the kernel, take the rows in groups of about eight. LLVM
  unrolls a loop that short and vectorises the one around it, and XLA splits the batch over
  threads; a reduction over everything is scalar code on one. A variadic reduce loads the
  cotangent once for several taps (5x5: 1.2 ms with five together, 8 with all 25, and 33 one by
  one, when XLA fuses both sums).
"""

import math
from collections.abc import Callable, Sequence
from functools import cache, reduce
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array, Float

from istanas_jax.devices.platforms import by_platform

_TERMS_PER_REDUCE = 5
_ROWS_PER_SUM = (8, 7, 6, 5, 4, *range(9, 17), 3, 2, 1)


def depthwise_conv(
    x: Float[Array, "B H W C"], w: Float[Array, "kh kw C"], *, stride: int = 1, dilation: int = 1
) -> Float[Array, "B Ho Wo C"]:
    """One odd-sized kernel per channel, padded by dilation * (k - 1) // 2 on each side."""
    _check_odd(*w.shape[:2])
    return _depthwise(stride, dilation)(x, w)


def max_pool(
    x: Float[Array, "B H W C"], *, stride: int = 1, window: int = 3
) -> Float[Array, "B Ho Wo C"]:
    """Padded by window // 2 with -inf; the gradient goes to the first of equal maxima."""
    _check_odd(window)
    return _max_pool(stride, window)(x)


def avg_pool(
    x: Float[Array, "B H W C"], *, stride: int = 1, window: int = 3
) -> Float[Array, "B Ho Wo C"]:
    """Padded by window // 2; the mean is over the pixels inside the image."""
    _check_odd(window)
    centres = [np.arange(0, n, stride) for n in x.shape[1:3]]
    rows, columns = (
        np.minimum(at + window // 2 + 1, n) - np.maximum(at - window // 2, 0)
        for at, n in zip(centres, x.shape[1:3], strict=True)
    )
    total = _window_sum(stride, window)(_wide(x))
    share = jnp.asarray(1 / np.outer(rows, columns), total.dtype)[None, :, :, None]
    return (total * share).astype(x.dtype)


def channel_sums(
    terms: Callable[..., Sequence[Float[Array, "B H W C"]]], *args: Float[Array, "B H W C"]
) -> list[Float[Array, " C"]]:
    """The sums of `terms(*args)` over all but the channels, in one pass over the arguments."""

    def grouped(*args):
        flat = [term.reshape(*term.shape[:2], -1) for term in terms(*args)]
        return _grouped_sums(flat, args[0].shape[-1])

    def plain(*args):
        return [jnp.sum(term, (0, 1, 2)) for term in terms(*args)]

    return by_platform(*args, cpu=grouped, default=plain)


@jax.custom_vjp
def fence(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x, computed once and stored, and so its gradient: not fused into each of their users.

    A node's state has up to four users and its gradient as many sources; the search step of a
    static net takes a fifth less time with a fence there.
    """
    return by_platform(x, cpu=_stored, default=lambda x: x)


def _stored(x):
    return _alone(lambda x: x, x)


fence.defvjp(
    lambda x: (fence(x), None),
    lambda _, g: (by_platform(g, cpu=_stored, default=lambda g: g),),
)


def _check_odd(*size: int) -> None:
    if any(k % 2 == 0 for k in size):
        raise ValueError(f"a centred window has an odd size, got {size}")


# The shifted form: what a window reads, and its transpose


def _alone(f: Callable[..., Array], *args: Array) -> Array:
    """`f(*args)`, computed once and stored, however many operations use the result.

    XLA's CPU backend fuses k * k taps into every user of their sum (two in batch norm's gradient:
    7.4 ms where 3.5 do). It drops optimization barriers before it fuses, but keeps calls.
    """
    return set_xla_metadata(jax.jit(f)(*args), inlineable="false")


def _padded(x: Array, size: tuple[int, int], dilation: int, fill: float = 0.0) -> Array:
    rows, columns = (dilation * (k - 1) // 2 for k in size)
    pad = [(0, 0, 0), (rows, rows, 0), (columns, columns, 0), (0, 0, 0)]
    return lax.pad(x, jnp.asarray(fill, x.dtype), pad)


def _taps(padded: Array, size: tuple[int, int], stride: int, dilation: int) -> list[Array]:
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


def _scatter(
    image: tuple[int, int],
    size: tuple[int, int],
    stride: int,
    dilation: int,
    outputs: Sequence[Float[Array, "B Ho Wo C"]],
    part: Callable[..., Array],
) -> Float[Array, "B H W C"]:
    """Transpose of `_taps`: a pixel's sum of `part(tap, *outputs)` over the windows it is in.

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

    return _alone(gather, *padded)


def _wide(x: Array) -> Array:
    """Sums are taken in float32 at least."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _output_shape(x: Array, stride: int) -> tuple[int, int, int, int]:
    return x.shape[0], -(-x.shape[1] // stride), -(-x.shape[2] // stride), x.shape[3]


def _per_platform(native, shifted, shifted_vjp):
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


# The functions are cached so that a call outside jit finds what the last one compiled.


@cache
def _depthwise(stride: int, dilation: int) -> Callable[..., Array]:
    def native(x, w):
        return lax.conv_general_dilated(
            x,
            w[:, :, None, :],
            window_strides=(stride, stride),
            padding=[(dilation * (k - 1) // 2,) * 2 for k in w.shape[:2]],
            rhs_dilation=(dilation, dilation),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=x.shape[-1],
        )

    def shifted(x, w):
        def weighted_sum(padded, w):
            taps = _taps(padded, w.shape[:2], stride, dilation)
            y = sum(tap * _weight(w, n, tap.shape) for n, tap in enumerate(taps))
            return y.reshape(_output_shape(x, stride)).astype(x.dtype)

        return _alone(weighted_sum, _padded(_wide(x), w.shape[:2], dilation), w)

    def shifted_vjp(x, w, g):
        dx = _input_gradient(x.shape[1:3], w, g, stride, dilation).astype(x.dtype)
        return dx, _kernel_gradient(x, w.shape[:2], g, stride, dilation).astype(w.dtype)

    return _per_platform(native, shifted, shifted_vjp)


def _weight(w: Float[Array, "kh kw C"], tap: int, shape: tuple[int, ...]) -> Array:
    """The weights of one tap, repeated over the columns that share the last axis of `shape`."""
    row = jnp.tile(_wide(w).reshape(-1, w.shape[-1])[tap], shape[-1] // w.shape[-1])
    return lax.broadcast_in_dim(row, shape, (len(shape) - 1,))


def _input_gradient(image, w, g, stride, dilation):
    def part(tap, g):
        return g * _weight(w, tap, g.shape)

    return _scatter(image, w.shape[:2], stride, dilation, [_wide(g)], part)


def _kernel_gradient(x, size, g, stride, dilation):
    def sums(padded, g):
        taps = _taps(padded, size, stride, dilation)
        wide = g.reshape(taps[0].shape)
        sums = _grouped_sums([tap * wide for tap in taps], g.shape[-1])
        return jnp.stack(sums).reshape(*size, g.shape[-1])

    return _alone(sums, _padded(_wide(x), size, dilation), _wide(g))


def _grouped_sums(terms: Sequence[Array], channels: int) -> list[Array]:
    """Sums over all but the channels, first of a few rows, several terms at a time."""
    batch, rows, *rest = terms[0].shape
    group = next(n for n in _ROWS_PER_SUM if rows % n == 0)
    terms = [term.reshape(batch, rows // group, group, *rest) for term in terms]
    share = math.ceil(len(terms) / math.ceil(len(terms) / _TERMS_PER_REDUCE))
    sums = []
    for n in range(0, len(terms), share):
        some = tuple(terms[n : n + share])
        zeros = (jnp.zeros((), some[0].dtype),) * len(some)
        sums += lax.reduce(some, zeros, lambda a, b: tuple(map(jnp.add, a, b)), (2,))
    return [s.reshape(-1, channels).sum(0) for s in sums]


def _reduce_window(x, init, reducer, stride, window):
    pad = [(0, 0), (window // 2, window // 2), (window // 2, window // 2), (0, 0)]
    return lax.reduce_window(x, init, reducer, (1, window, window, 1), (1, stride, stride, 1), pad)


@cache
def _max_pool(stride: int, window: int) -> Callable[[Array], Array]:
    size = (window, window)

    def native(x):
        return _reduce_window(x, -np.inf, lax.max, stride, window)

    def shifted(x):
        def maximum(padded):
            y = reduce(jnp.maximum, _taps(padded, size, stride, 1))
            return y.reshape(_output_shape(x, stride))

        return _alone(maximum, _padded(x, size, 1, -np.inf))

    def winner(padded):
        taps = enumerate(_taps(padded, size, stride, 1))
        entries = [(tap, jnp.full(tap.shape, n)) for n, tap in taps]
        while len(entries) > 1:  # in pairs, since a chain of comparisons waits for each
            pairs = zip(entries[::2], entries[1::2], strict=False)
            entries = [_greater(*pair) for pair in pairs] + entries[len(entries) // 2 * 2 :]
        return entries[0][1]

    def shifted_vjp(x, g):
        won = _alone(winner, _padded(x, size, 1, -np.inf))

        def part(tap, g, won):
            return jnp.where(won == tap, g, 0)

        outputs = [_wide(g), won.reshape(g.shape)]
        dx = _scatter(x.shape[1:3], size, stride, 1, outputs, part)
        return (dx.astype(x.dtype),)

    return _per_platform(native, shifted, shifted_vjp)


def _greater(first, later):
    wins = later[0] > first[0]  # strictly: the first of equals stays
    return jnp.where(wins, later[0], first[0]), jnp.where(wins, later[1], first[1])


@cache
def _window_sum(stride: int, window: int) -> Callable[[Array], Array]:
    size = (window, window)

    def native(x):
        return _reduce_window(x, 0.0, lax.add, stride, window)

    def shifted(x):
        def total(padded):
            return sum(_taps(padded, size, stride, 1)).reshape(_output_shape(x, stride))

        return _alone(total, _padded(x, size, 1))

    def shifted_vjp(x, g):
        return (_scatter(x.shape[1:3], size, stride, 1, [g], lambda _, g: g),)

    return _per_platform(native, shifted, shifted_vjp)
