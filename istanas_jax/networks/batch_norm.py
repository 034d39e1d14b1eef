"""Batch normalisation as a pure function, with a gradient of its own that takes one pass.

epsilon is 1e-5; the running statistics move by a tenth, towards the unbiased variance. Sums are
taken in float32, those of float64 images in float64. Autodiff of the textbook form would read the
image five times and keep three copies of it; this form reads it twice and keeps one copy.
"""

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from istanas_jax.networks.kernels import channel_sums

EPSILON = 1e-5
MOMENTUM = 0.9

Stats = Float[Array, "*norms 2 C"]  # mean and variance of each batch norm


@dataclass(frozen=True)
class Mode:
    """How batch norms behave: in training they use the batch's own statistics, shared over
    `axis_name` if it names a pmapped axis; otherwise they use the running ones."""

    train: bool
    axis_name: str | None = None


def init_stats(norms: int, channels: int) -> Stats:
    """Running mean 0 and variance 1."""
    return jnp.stack([jnp.zeros((norms, channels)), jnp.ones((norms, channels))], 1)


def update_stats(running: Stats, batch: Stats) -> Stats:
    # In this form a statistic that is its own target keeps its bits.
    return running + (1 - MOMENTUM) * (batch - running)


def batch_norm(
    x: Float[Array, "B H W C"],
    scale: Float[Array, " C"] | None,
    shift: Float[Array, " C"] | None,
    running: Float[Array, "2 C"],
    mode: Mode,
) -> tuple[Float[Array, "B H W C"], Float[Array, "2 C"]]:
    """Normalise over all axes but the channels; also return what the running statistics move to.

    A missing scale or shift counts as 1 or 0 and has no gradient.
    """
    if mode.train:
        return _by_batch(mode.axis_name, x, scale, shift)
    return _affine(x, running[0], lax.rsqrt(running[1] + EPSILON), scale, shift), running


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _by_batch(axis_name, x, scale, shift):
    y, _, moments = _forward(axis_name, x, scale, shift)
    return y, moments


def _by_batch_fwd(axis_name, x, scale, shift):
    y, residuals, moments = _forward(axis_name, x, scale, shift)
    return (y, moments), residuals


def _forward(axis_name, x, scale, shift):
    count = math.prod(x.shape[:-1])
    # Sums of squares cancel where the mean is far from 0, so they are taken around a pixel.
    pivot = _full(x[0, 0, 0])

    def terms(x, pivot):
        centred = _full(x) - _wide(pivot)
        return centred, centred * centred

    total, squares = channel_sums(terms, x, pivot)
    offset = total / count
    mean, variance = pivot + offset, jnp.maximum(squares / count - offset * offset, 0)
    if axis_name is not None:
        # The mean of the devices' variances plus the variance of their means.
        local, mean = mean, lax.pmean(mean, axis_name)
        variance = lax.pmean(variance + jnp.square(local - mean), axis_name)
        count = count * lax.axis_size(axis_name)
    rstd = lax.rsqrt(variance + EPSILON)
    moments = jnp.stack([mean, variance * (count / max(count - 1, 1))])
    return _affine(x, mean, rstd, scale, shift), (x, mean, rstd, scale, shift), moments


def _by_batch_bwd(axis_name, residuals, cotangents):
    x, mean, rstd, scale, shift = residuals
    g, _ = cotangents  # the statistics are not differentiated
    count = math.prod(x.shape[:-1])

    def terms(x, g, mean):
        g = _full(g)
        return g, g * (_full(x) - _wide(mean))

    sum_g, sum_gx = channel_sums(terms, x, g, mean)
    sum_gx = sum_gx * rstd
    mean_g, mean_gx = sum_g / count, sum_gx / count
    if axis_name is not None:
        mean_g, mean_gx = lax.pmean((mean_g, mean_gx), axis_name)
    # dx = rstd scale (g - mean_g - x_hat mean_gx) as a multiple of g, one of x, and a constant.
    factor = rstd if scale is None else rstd * scale
    of_x = -factor * mean_gx * rstd
    constant = -factor * mean_g - of_x * mean
    dx = _full(g) * _wide(factor) + _full(x) * _wide(of_x) + _wide(constant)
    dx = dx.astype(x.dtype)
    return dx, None if scale is None else sum_gx, None if shift is None else sum_g


_by_batch.defvjp(_by_batch_fwd, _by_batch_bwd)


def _affine(x, mean, rstd, scale, shift):
    factor = rstd if scale is None else rstd * scale
    offset = -mean * factor if shift is None else shift - mean * factor
    return (_full(x) * _wide(factor) + _wide(offset)).astype(x.dtype)


def _full(x: Array) -> Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _wide(v: Float[Array, " C"]) -> Float[Array, "1 1 1 C"]:
    return v[None, None, None, :]
