"""Max- and average-pooling."""

from collections.abc import Callable
from functools import cache, reduce

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from istanas_jax.devices.platforms import by_platform
from istanas_jax.networks.kernels import windows
from istanas_jax.networks.kernels.lanes import in_lanes


def max_pool(
    x: Float[Array, "B H W C"], *, stride: int = 1, window: int = 3
) -> Float[Array, "B Ho Wo C"]:
    """Max-pool, padded by window // 2 with -inf; equal maxima: the first gets the gradient."""
    windows.check_odd(window)
    return _max_pool(stride, window)(x)


def avg_pool(
    x: Float[Array, "B H W C"], *, stride: int = 1, window: int = 3
) -> Float[Array, "B Ho Wo C"]:
    """Average-pool, padded by window // 2; the mean is over the pixels inside the image."""
    windows.check_odd(window)
    centres = [np.arange(0, n, stride) for n in x.shape[1:3]]
    rows, columns = (
        np.minimum(at + window // 2 + 1, n) - np.maximum(at - window // 2, 0)
        for at, n in zip(centres, x.shape[1:3], strict=True)
    )
    total = _window_sum(stride, window)(windows.widen(x))
    share = jnp.asarray(1 / np.outer(rows, columns), total.dtype)[None, :, :, None]
    return (total * share).astype(x.dtype)


def _reduce_window(x, init, reducer, stride, window):
    def reduced(x, axes):
        sizes = [1, 1, 1, 1], [1, 1, 1, 1], [(0, 0)] * 4
        for axis in axes:
            for values, value in zip(sizes, (window, stride, (window // 2,) * 2), strict=True):
                values[axis] = value
        return lax.reduce_window(x, init, reducer, *sizes)

    def batch_last(x):
        # In this order the TPU's compiler keeps the layout of the convolutions around a pool;
        # in the other it copies all that a branch of the super-net reads.
        return in_lanes(jnp.moveaxis(reduced(jnp.moveaxis(in_lanes(x), 0, 3), (0, 1)), 3, 0))

    return by_platform(x, default=lambda x: reduced(x, (1, 2)), tpu=batch_last)


@cache
def _max_pool(stride: int, window: int) -> Callable[[Array], Array]:
    size = (window, window)

    def native(x):
        return _reduce_window(x, -np.inf, lax.max, stride, window)

    def shifted(x):
        how = {"shape": windows.output_shape(x, stride), "size": size, "stride": stride}
        return windows.alone(_maximum, windows.pad_image(x, size, 1, -np.inf), **how)

    def shifted_vjp(x, g):
        padded = windows.pad_image(x, size, 1, -np.inf)
        won = windows.alone(_winner, padded, size=size, stride=stride)
        outputs = [windows.widen(g), won.reshape(g.shape)]
        dx = windows.scatter(x.shape[1:3], size, stride, 1, outputs, _part_of_winner)
        return (dx.astype(x.dtype),)

    return windows.per_platform(native, shifted, shifted_vjp)


def _maximum(padded, *, shape, size, stride):
    return lax.reshape(reduce(lax.max, windows.taps(padded, size, stride, 1)), shape)


def _winner(padded, *, size, stride):
    """The number of the tap that is the maximum of each window."""
    taps = enumerate(windows.taps(padded, size, stride, 1))
    entries = [(tap, lax.full(tap.shape, n, jnp.int32)) for n, tap in taps]
    while len(entries) > 1:  # in pairs, since a chain of comparisons waits for each
        pairs = zip(entries[::2], entries[1::2], strict=False)
        entries = [_greater(*pair) for pair in pairs] + entries[len(entries) // 2 * 2 :]
    return entries[0][1]


def _greater(first, later):
    wins = lax.gt(later[0], first[0])  # strictly: the first of equals stays
    return lax.select(wins, later[0], first[0]), lax.select(wins, later[1], first[1])


def _part_of_winner(tap, g, won):
    return lax.select(lax.eq(won, lax.full_like(won, tap)), g, lax.full_like(g, 0))


@cache
def _window_sum(stride: int, window: int) -> Callable[[Array], Array]:
    size = (window, window)

    def native(x):
        return _reduce_window(x, 0.0, lax.add, stride, window)

    def shifted(x):
        how = {"shape": windows.output_shape(x, stride), "size": size, "stride": stride}
        return windows.alone(_total, windows.pad_image(x, size, 1), **how)

    def shifted_vjp(x, g):
        return (windows.scatter(x.shape[1:3], size, stride, 1, [g], _part_of_sum),)

    return windows.per_platform(native, shifted, shifted_vjp)


def _total(padded, *, shape, size, stride):
    return lax.reshape(windows.total(windows.taps(padded, size, stride, 1)), shape)


def _part_of_sum(tap, g):
    return g
