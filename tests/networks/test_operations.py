"""Batch norm against autodiff of the textbook form; bfloat16; heads and drop-path."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import EPSILON, Mode, batch_norm, init_stats
from istanas_jax.networks.stem_and_heads import AuxiliaryHead
from istanas_jax.networks.target_net import TargetNet, draw_paths, init_target
from istanas_jax.networks.variables import init_variables
from istanas_jax.space import genotype

TRAIN = Mode(train=True)


def images(seed, *shape, mean=0.0):
    return (mean + np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def textbook(x, scale, shift):
    wide = lambda v: v[None, None, None, :]  # noqa: E731
    mean = x.mean((0, 1, 2))
    variance = jnp.square(x - wide(mean)).mean((0, 1, 2))
    y = (x - wide(mean)) * wide(jax.lax.rsqrt(variance + EPSILON))
    return y * wide(scale) + wide(shift)


@pytest.mark.parametrize("mean", [0.0, 300.0])
def test_batch_norm_and_its_gradients(mean):
    x, g = images(0, 4, 6, 5, 3, mean=mean), images(1, 4, 6, 5, 3)
    scale, shift = images(2, 3), images(3, 3)
    ours = lambda x, scale, shift: batch_norm(x, scale, shift, init_stats(1, 3)[0], TRAIN)  # noqa: E731
    y, vjp, moments = jax.vjp(ours, x, scale, shift, has_aux=True)
    expected, vjp_expected = jax.vjp(textbook, x, scale, shift)
    # A mean of 300 leaves float32 about 3e-5 of a standard deviation.
    tolerance = 1e-5 if mean == 0 else 2e-3
    np.testing.assert_allclose(y, expected, atol=tolerance)
    for mine, theirs in zip(vjp(g), vjp_expected(g), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=tolerance * 10)
    flat = x.reshape(-1, 3).astype(np.float64)
    np.testing.assert_allclose(moments[0], flat.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moments[1], flat.var(0, ddof=1), rtol=1e-3)


def test_statistics_shared_over_devices_are_those_of_the_whole_batch():
    if jax.local_device_count() < 2:
        pytest.skip("needs two devices")
    x, g = images(0, 4, 6, 5, 3, mean=1.0), images(1, 4, 6, 5, 3)

    def run(x, g, axis_name):
        f = lambda x: batch_norm(x, None, None, init_stats(1, 3)[0], Mode(True, axis_name))  # noqa: E731
        y, vjp, moments = jax.vjp(f, x, has_aux=True)
        return y, vjp(g)[0], moments

    whole = run(x, g, None)
    split = lambda a: a.reshape(2, 2, *a.shape[1:])  # noqa: E731
    shared = jax.pmap(partial(run, axis_name="devices"), axis_name="devices")(split(x), split(g))
    for mine, theirs in zip(shared[:2], whole[:2], strict=True):
        np.testing.assert_allclose(mine.reshape(theirs.shape), theirs, atol=1e-5)
    np.testing.assert_allclose(shared[2][0], whole[2], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["sep_conv_3x3", "dil_conv_5x5", "max_pool_3x3", "conv_7x1_1x7"])
def test_bfloat16_gradients_are_near_float32(op):
    shapes = operations.weight_shapes(op, 4, 2, operations.ONE_STAGE)
    weights = {
        n: operations.init_weight(jax.random.key(i), n, s)
        for i, (n, s) in enumerate(shapes.items())
    }
    stats = init_stats(operations.num_norms(op, 2, operations.ONE_STAGE), 4)

    @partial(jax.jit, static_argnums=2)
    def gradients(x, weights, dtype):
        def loss(x, weights):
            y, _ = operations.apply_op(op, x.astype(dtype), weights, stats, stride=2, mode=TRAIN)
            return jnp.sum(y.astype(jnp.float32) * g)

        return jax.grad(loss, (0, 1))(x, weights)

    x, g = images(0, 4, 8, 8, 4), images(1, 4, 4, 4, 4)
    wide, narrow = gradients(x, weights, "float32"), gradients(x, weights, "bfloat16")
    for a, b in zip(jax.tree.leaves(narrow), jax.tree.leaves(wide), strict=True):
        assert a.dtype == jnp.float32
        # bfloat16 keeps 8 bits, and a rounded maximum or ReLU may choose another pixel.
        assert np.abs(a - b).mean() < 0.1 * np.abs(b).max() + 1e-6


def test_drop_path_drops_samples_and_spares_identity():
    net = TargetNet(genotype.load("ISTA_twostage"), classes=3, cells=3, channels=4)
    x = images(0, 2, 8, 8, 3)
    variables = init_target(net, jax.random.key(0), 8)
    apply = jax.jit(lambda x, paths: net.apply(variables, x, train=False, paths=paths)[0])
    kept = jnp.ones((2, 3, 4, 2))
    plain = apply(x, kept)
    # One image without any connection but identity: the other does not notice.
    one = apply(x, kept.at[0].set(0))
    np.testing.assert_array_equal(one[1], plain[1])
    assert not np.allclose(one[0], plain[0], atol=1e-3)
    # Identity (node 0, first connection of the normal cell) stays whatever its factor is.
    np.testing.assert_array_equal(apply(x, kept.at[:, 0, 0, 0].set(0)), plain)
    assert not np.allclose(apply(x, kept.at[:, 0, 0, 1].set(0)), plain, atol=1e-3)


def test_paths_are_dropped_as_often_as_asked():
    net = TargetNet(genotype.load("ISTA_twostage"), classes=3, cells=20, channels=4)
    paths = np.asarray(draw_paths(net, jax.random.key(0), jnp.float32(0.2), 100))
    assert set(np.unique(paths)) == {np.float32(0), np.float32(1) / np.float32(0.8)}
    # 32,000 draws: a standard deviation of 0.0022.
    assert abs((paths == 0).mean() - 0.2) < 0.01


@pytest.mark.parametrize(("stem", "size"), [("cifar", 7), ("imagenet", 6)])
def test_auxiliary_head_refuses_small_images(stem, size):
    head = AuxiliaryHead(stem, 10)
    with pytest.raises(ValueError, match="set auxiliary_weight to 0"):
        init_variables(head, jax.random.key(0), jnp.zeros((1, size, size, 8)), Mode(False))
    logits = jax.eval_shape(
        lambda: head.init(jax.random.key(0), jnp.zeros((1, size + 1, size + 1, 8)), Mode(False))
    )
    assert logits["params"]["classifier"]["linear"]["kernel"].shape == (768, 10)
