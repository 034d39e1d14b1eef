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
        def weighted_sum(padded, w):
            taps = windows.taps(padded, w.shape[:2], stride, dilation)
            y = sum(tap * _weight(w, n, tap.shape) for n, tap in enumerate(taps))
            return y.reshape(windows.output_shape(x, stride)).astype(x.dtype)

        return windows.alone(
            weighted_sum, windows.pad_image(windows.widen(x), w.shape[:2], dilation), w
        )

    def shifted_vjp(x, w, g):
        dx = _input_gradient(x.shape[1:3], w, g, stride, dilation).astype(x.dtype)
        return dx, _kernel_gradient(x, w.shape[:2], g, stride, dilation).astype(w.dtype)

    return windows.per_platform(native, shifted, shifted_vjp)


def _weight(w: Float[Array, "kh kw C"], tap: int, shape: tuple[int, ...]) -> Array:
    """The weights of one tap, repeated over the columns that share the last axis of `shape`."""
    row = jnp.tile(windows.widen(w).reshape(-1, w.shape[-1])[tap], shape[-1] // w.shape[-1])
    return lax.broadcast_in_dim(row, shape, (len(shape) - 1,))


def _input_gradient(image, w, g, stride, dilation):
    def part(tap, g):
        return g * _weight(w, tap, g.shape)

    return windows.scatter(image, w.shape[:2], stride, dilation, [windows.widen(g)], part)


def _kernel_gradient(x, size, g, stride, dilation):
    def sums(padded, g):
        taps = windows.taps(padded, size, stride, dilation)
        wide = g.reshape(taps[0].shape)
        sums = grouped_sums([tap * wide for tap in taps], g.shape[-1])
        return jnp.stack(sums).reshape(*size, g.shape[-1])

    return windows.alone(
        sums, windows.pad_image(windows.widen(x), size, dilation), windows.widen(g)
    )
