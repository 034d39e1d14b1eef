"""The forms that TPUs run, on the CPU, against the plain ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from istanas_jax.devices.platforms import only
from istanas_jax.networks import operations
from istanas_jax.networks.kernels import avg_pool, in_lanes, max_pool
from istanas_jax.space import layers


def as_on(platform, f, *args):
    """The value and the gradients of f as a platform computes them, jitted like a step."""

    def both(*args):
        y, vjp = jax.vjp(f, *args)
        return y, vjp(jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape))

    return jax.jit(only(platform, both))(*args)


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 1, 1), (5, 2, 1), (3, 2, 2)])
def test_a_separable_convolution_is_one_convolution(kernel, stride, dilation):
    layer = layers.Depthwise(stride, kernel, dilation)
    args = draw(0, 2, 9, 9, 4), draw(1, kernel, kernel, 4), draw(2, 4, 6)

    def f(x, depthwise, w):
        return operations.separable(x, depthwise, w, layer)

    text = jax.jit(only("tpu", f)).lower(*args).as_text()
    assert text.count("stablehlo.convolution") == 1
    assert "stablehlo.dot_general" not in text
    # Sums of up to 25 * 4 float32 products, in another order.
    tpu, cpu = (jax.tree.leaves(as_on(platform, f, *args)) for platform in ("tpu", "cpu"))
    for mine, plain in zip(tpu, cpu, strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-4)


def test_wide_separable_convolutions_stay_in_two_parts():
    wide = operations.MATRIX_UNIT + 2
    args = draw(0, 1, 4, 4, wide), draw(1, 3, 3, wide), draw(2, wide, wide)
    f = lambda x, d, w: operations.separable(x, d, w, layers.Depthwise())  # noqa: E731
    text = jax.jit(only("tpu", f)).lower(*args).as_text()
    assert f"feature_group_count = {wide}" in text


@pytest.mark.parametrize("pool", [max_pool, avg_pool])
@pytest.mark.parametrize("stride", [1, 2])
def test_pools_with_the_batch_last(pool, stride):
    args = (draw(0, 3, 7, 7, 2),)
    f = lambda x: pool(x, stride=stride)  # noqa: E731
    tpu, cpu = as_on("tpu", f, *args), as_on("cpu", f, *args)
    # Sums of nine numbers, in another order.
    np.testing.assert_allclose(tpu[0], cpu[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(tpu[1][0], cpu[1][0], rtol=1e-6, atol=1e-6)


def test_images_in_lanes_are_the_same_images():
    x = draw(0, 5, 4, 3, 3, 2)
    y, (gradient,) = as_on("tpu", in_lanes, x)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(gradient, as_on("cpu", in_lanes, x)[1][0])
    assert "LayoutConstraint" in jax.jit(only("tpu", in_lanes)).lower(x).as_text()
    assert "LayoutConstraint" not in jax.jit(only("cuda", in_lanes)).lower(x).as_text()


@pytest.mark.parametrize(("batch", "channels"), [(24, 36), (130, 100)])
def test_a_batch_that_leaves_more_lanes_empty_than_channels_do(batch, channels):
    x = np.zeros((batch, 1, 1, channels), np.float32)
    assert "LayoutConstraint" not in jax.jit(only("tpu", in_lanes)).lower(x).as_text()
