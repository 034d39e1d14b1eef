"""Depthwise convolution."""

from collections.abc import Callable
from functools import cache, partial

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from istanas_jax.devices.platforms import product
from istanas_jax.networks.kernels import windows
from istanas_jax.networks.kernels.sums import grouped_sums


def depthwise_conv(
    x: Float[Array, "B H W C"], w: Float[Array, "kh kw C"], *, stride: int = 1, dilation: int = 1
) -> Float[Array, "B Ho Wo C"]:
    """Apply one odd-sized kernel per channel; pads dilation * (k - 1) // 2 on each side."""
    windows.check_odd(*w.shape[:2])
    return _depthwise(stride, dilation)(x, w)


# Cached, so that a call outside jit finds what the last one compiled.
@cache
def _depthwise(stride: int, dilation: int) -> Callable[..., Array]:
    def native(x, w):
        convolve = partial(
            lax.conv_general_dilated,
            window_strides=(stride, stride),
            padding=[(dilation * (k - 1) // 2,) * 2 for k in w.shape[:2]],
            rhs_dilation=(dilation, dilation),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=x.shape[-1],
        )
        return product(convolve, x, w[:, :, None, :])

    def shifted(x, w):
        padded = windows.pad_image(windows.widen(x), w.shape[:2], dilation)
        shape = windows.output_shape(x, stride)
        how = {"shape": shape, "dtype": x.dtype, "stride": stride, "dilation": dilation}
        return windows.alone(_weighted_sum, padded, w, **how)

    def shifted_vjp(x, w, g):
        wide = windows.widen(g)
        size = w.shape[:2]
        dx = windows.scatter(x.shape[1:3], size, stride, dilation, [wide], _input_part, w)
        padded = windows.pad_image(windows.widen(x), size, dilation)
        how = {"size": size, "stride": stride, "dilation": dilation}
        dw = windows.alone(_kernel_gradient, padded, wide, **how)
        return dx.astype(x.dtype), dw.astype(w.dtype)

    return windows.per_platform(native, shifted, shifted_vjp)


def _weighted_sum(padded, w, *, shape, dtype, stride, dilation):
    taps = windows.taps(padded, w.shape[:2], stride, dilation)
    y = windows.total([lax.mul(tap, _weight(w, n, tap.shape)) for n, tap in enumerate(taps)])
    return lax.reshape(y, shape).astype(dtype)


def _weight(w: Float[Array, "kh kw C"], tap: int, shape: tuple[int, ...]) -> Array:
    """The weights of one tap, repeated over the columns that share the last axis of `shape`."""
    (kh, kw, c), columns = w.shape, shape[-1] // w.shape[-1]
    rows = lax.reshape(windows.widen(w), (kh * kw, c))
    row = lax.reshape(lax.slice(rows, (tap, 0), (tap + 1, c)), (c,))
    if columns > 1:
        row = lax.reshape(lax.broadcast_in_dim(row, (columns, c), (1,)), (columns * c,))
    return lax.broadcast_in_dim(row, shape, (len(shape) - 1,))


def _input_part(tap, g, w):
    return lax.mul(g, _weight(w, tap, g.shape))


def _kernel_gradient(padded, g, *, size, stride, dilation):
    taps = windows.taps(padded, size, stride, dilation)
    wide = lax.reshape(g, taps[0].shape)
    sums = grouped_sums([lax.mul(tap, wide) for tap in taps], g.shape[-1])
    return jnp.stack(sums).reshape(*size, g.shape[-1])
