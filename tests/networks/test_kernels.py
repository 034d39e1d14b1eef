"""The kernels against XLA's native primitives, which are the independent answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from istanas_jax.networks import kernels

SIZES = [(1, 1), (3, 3), (8, 7)]
# Sums of at most 49 (a pixel) or 2 * 8 * 7 (a tap) products of order one, in another order:
# float32 rounding is below 1e-5. bfloat16 has 8 bits, and both sides round the same sum once.
TOLERANCE = {jnp.float32: 2e-5, jnp.bfloat16: 1e-2}


def native_conv(x, w, stride, dilation):
    return lax.conv_general_dilated(
        x,
        w[:, :, None, :],
        window_strides=(stride, stride),
        padding=[(dilation * (k - 1) // 2,) * 2 for k in w.shape[:2]],
        rhs_dilation=(dilation, dilation),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1],
    )


def native_pool(x, init, reducer, stride, window):
    pad = ((0, 0), (window // 2, window // 2), (window // 2, window // 2), (0, 0))
    return lax.reduce_window(x, init, reducer, (1, window, window, 1), (1, stride, stride, 1), pad)


def native_max(x, stride, window):
    return native_pool(x, -jnp.inf, lax.max, stride, window)


def native_avg(x, stride, window):
    counts = native_pool(jnp.ones_like(x), 0.0, lax.add, stride, window)
    return native_pool(x, 0.0, lax.add, stride, window) / counts


def normal(seed, shape, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def value_and_gradients(f, *args):
    y, vjp = jax.vjp(f, *args)
    return y, *vjp(normal(9, y.shape, y.dtype))


def assert_close(actual, expected, tolerance):
    for a, e in zip(actual, expected, strict=True):
        assert a.shape == e.shape
        e = np.asarray(e, np.float64)
        np.testing.assert_allclose(np.asarray(a, np.float64), e, 0, tolerance * (1 + abs(e).max()))


@pytest.mark.slow
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (7, 7), (1, 7), (7, 1)])
def test_depthwise_conv_and_gradients(kernel, stride, dilation):
    def ours(x, w):
        return kernels.depthwise_conv(x, w, stride=stride, dilation=dilation)

    def theirs(x, w):
        return native_conv(x, w, stride, dilation)

    @jax.jit
    def both(xs, w):
        return [value_and_gradients(ours, x, w) for x in xs], [
            value_and_gradients(theirs, x, w) for x in xs
        ]

    xs = [normal(0, (2, *size, 3)) for size in SIZES]
    for actual, expected in zip(*both(xs, normal(1, (*kernel, 3))), strict=True):
        assert_close(actual, expected, TOLERANCE[jnp.float32])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stride", "window", "dtype"),
    [(1, 3, jnp.float32), (2, 3, jnp.float32), (2, 5, jnp.float32), (1, 3, jnp.bfloat16)],
)
@pytest.mark.parametrize(
    ("pool", "native"), [(kernels.max_pool, native_max), (kernels.avg_pool, native_avg)]
)
def test_pooling_and_gradients(pool, native, stride, window, dtype):
    def ours(x):
        return pool(x, stride=stride, window=window)

    def theirs(x):
        return native(x.astype(jnp.float32), stride, window).astype(dtype)

    @jax.jit
    def both(xs):
        return [value_and_gradients(ours, x) for x in xs], [
            value_and_gradients(theirs, x) for x in xs
        ]

    xs = [normal(0, (2, *size, 3), dtype) for size in SIZES]
    for actual, expected in zip(*both(xs), strict=True):
        assert actual[0].dtype == actual[1].dtype == dtype
        assert_close(actual, expected, TOLERANCE[dtype])


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("levels", [1, 3])
def test_max_pool_gives_each_gradient_to_one_of_equal_maxima(stride, levels):
    x = np.random.default_rng(0).integers(1 - levels, levels, (4, 9, 8, 5))
    x = jnp.maximum(jnp.asarray(x, jnp.float32), 0)
    f = jax.jit(lambda x: value_and_gradients(lambda x: kernels.max_pool(x, stride=stride), x))
    y, dx = f(x)
    y_native, dx_native = value_and_gradients(lambda x: native_max(x, stride, 3), x)
    np.testing.assert_array_equal(y, y_native)
    # A pixel sums at most nine cotangents, in another order; a wrong winner moves order one.
    np.testing.assert_allclose(dx, dx_native, rtol=0, atol=1e-5)
    # Whole numbers add without rounding, so nothing may be lost or counted twice.
    g = jnp.arange(y.size, dtype=jnp.float32).reshape(y.shape) % 7 + 1
    _, vjp = jax.vjp(lambda x: kernels.max_pool(x, stride=stride), x)
    assert float(vjp(g)[0].sum()) == float(g.sum())


def test_average_leaves_the_padding_out():
    x = jnp.full((1, 4, 5, 2), 3.0)
    for stride in (1, 2):
        y = kernels.avg_pool(x, stride=stride)
        np.testing.assert_allclose(y, jnp.full_like(y, 3.0), rtol=1e-6)  # one float32 division


@pytest.mark.parametrize("stride", [1, 2])
def test_bfloat16_convolution_accumulates_in_float32(stride):
    x, w = normal(0, (4, 16, 16, 8), jnp.bfloat16), normal(1, (5, 5, 8), jnp.bfloat16)
    ours = jax.jit(
        lambda x, w: value_and_gradients(
            lambda x, w: kernels.depthwise_conv(x, w, stride=stride), x, w
        )
    )(x, w)
    y, vjp = jax.vjp(lambda x, w: native_conv(x, w, stride, 1), *map(jnp.float32, (x, w)))
    expected = y, *vjp(jnp.float32(normal(9, y.shape, jnp.bfloat16)))
    for actual, e in zip(ours, expected, strict=True):
        assert actual.dtype == jnp.bfloat16
        # One rounding to 8 bits is at most 2**-8 of each number (twice that leaves room for
        # float32's own order of summation); 1,024 bfloat16 additions would lose the sum entirely.
        np.testing.assert_allclose(jnp.float32(actual), e, rtol=2**-7, atol=1e-3)


@pytest.mark.slow
def test_works_inside_switch_scan_while_and_pmap():
    x, w = normal(0, (2, 8, 8, 4)), normal(1, (3, 3, 4))
    branches = [
        lambda x, w: kernels.depthwise_conv(x, w),
        lambda x, w: kernels.max_pool(x),
        lambda x, w: kernels.avg_pool(x),
    ]

    def loss(x, w):
        def body(x, n):
            return lax.switch(n, branches, x, w), None

        x, _ = lax.scan(body, x, jnp.array([0, 1, 2, 0]))
        return jnp.sum(jnp.sin(x))

    def reference(x, w):
        x = native_avg(native_max(native_conv(x, w, 1, 1), 1, 3), 1, 3)
        return jnp.sum(jnp.sin(native_conv(x, w, 1, 1)))

    actual = jax.jit(jax.value_and_grad(loss, (0, 1)))(x, w)
    expected = jax.value_and_grad(reference, (0, 1))(x, w)
    # Four float32 layers of 9-term sums; the sine keeps every slope at most one.
    assert_close(jax.tree.leaves(actual), jax.tree.leaves(expected), 1e-4)

    _, looped = lax.while_loop(
        lambda state: state[0] < 2, lambda state: (state[0] + 1, branches[0](state[1], w)), (0, x)
    )
    assert_close([looped], [native_conv(native_conv(x, w, 1, 1), w, 1, 1)], 1e-5)

    mapped = jax.pmap(jax.grad(loss, (0, 1)), devices=jax.local_devices()[:1])(x[None], w[None])
    assert_close([m[0] for m in mapped], actual[1], 1e-5)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
@pytest.mark.parametrize(
    ("f", "primitives"),
    [
        (lambda x: kernels.depthwise_conv(x, jnp.ones((7, 7, 4))), ["convolution"]),
        (lambda x: kernels.max_pool(x), ["reduce_window", "select_and_scatter"]),
        (lambda x: kernels.avg_pool(x, stride=2), ["reduce_window"]),
    ],
)
def test_accelerators_get_the_native_primitive(f, primitives, platform):
    x = normal(0, (2, 8, 8, 4))
    step = jax.jit(lambda x: value_and_gradients(f, x))
    text = step.trace(x).lower(lowering_platforms=(platform,)).as_text()
    for primitive in primitives:
        assert f"stablehlo.{primitive}" in text
    assert text.count("stablehlo.slice") <= 1  # select-and-scatter's own cropping
    # and the CPU the shifted form, without which the line above would prove nothing
    text = step.trace(x).lower(lowering_platforms=("cpu",)).as_text()
    assert text.count("stablehlo.slice") >= 9
    assert not any(f"stablehlo.{primitive}" in text for primitive in primitives)


def test_cpu_computes_the_taps_once_for_all_users():
    def twice_used(x):
        y = kernels.max_pool(x)
        return y * y.sum((0, 1, 2), keepdims=True)

    # XLA must keep the call: inlined, the taps would be fused into both users of y.
    assert " call(" in jax.jit(twice_used).lower(normal(0, (2, 8, 8, 4))).compile().as_text()


def test_even_windows_are_refused():
    x = jnp.ones((1, 4, 4, 2))
    for f in (
        lambda: kernels.depthwise_conv(x, jnp.ones((3, 2, 2))),
        lambda: kernels.max_pool(x, window=2),
        lambda: kernels.avg_pool(x, window=4),
    ):
        with pytest.raises(ValueError, match="odd size"):
            f()
