"""Low precision: sums that decide something are taken in float32, products round as asked for."""

import re
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from istanas_jax.devices.platforms import only, product
from istanas_jax.networks import agreement, operations
from istanas_jax.networks.supernet.dense import Mixture
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.variables import init_variables
from istanas_jax.space.connections import num_edges
from istanas_jax.space.spaces import DARTS
from istanas_jax.sparse_coding.architecture import Coding, coefficients, init_architecture

NET = SuperNet(classes=10, cells=1, channels=4, space=replace(DARTS, nodes=2))
ARCH = init_architecture(jax.random.key(0), Coding(space=replace(DARTS, nodes=2)), sigma=1.0).arch


@pytest.fixture(scope="module")
def batch():
    """Images of ten patterns with noise, which the net can learn.

    Rounding turns some ReLUs on or off, at random: over 128 images that averages out. Of 32, which
    the net soon knows by heart, the gradient of W that is left correlates by 0.97 only.
    """
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 128)
    patterns = rng.standard_normal((10, 8, 8, 3))
    return np.float32(patterns[labels] + 0.5 * rng.standard_normal((128, 8, 8, 3))), labels


def inputs_of(form, arch):
    """The network's inputs, from b in the dynamic form and from DARTS's alpha in the dense one."""
    if form == "dense":
        return {"mixture": Mixture(jax.nn.softmax(arch)[..., 1:])}
    return {"support": ARCH.support, "coefficients": coefficients(ARCH.replace(b=arch))}


def gradient(form, dtype, stats, x, labels):
    net = NET.clone(dtype=dtype)

    def loss(params, arch):
        variables = {"params": params, "batch_stats": stats}
        (logits, _), _ = net.apply(
            variables, x, **inputs_of(form, arch), train=True, mutable="batch_stats"
        )
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return jax.jit(only("cpu", jax.grad(loss, argnums=(0, 1))))


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dynamic", "dense"])
def test_gradients_in_bfloat16_are_those_of_float32(form, batch):
    """Of W and of the architecture, on a net trained for some steps."""
    alpha = 0.1 * jax.random.normal(jax.random.key(1), (2, num_edges(2), 1 + DARTS.num_ops))
    arch = alpha if form == "dense" else ARCH.b
    variables = init_variables(
        NET, jax.random.key(0), batch[0], **inputs_of(form, arch), train=False
    )
    params, stats = variables["params"], variables["batch_stats"]
    wide, narrow = (gradient(form, dtype, stats, *batch) for dtype in ("float32", "bfloat16"))
    for _ in range(10):
        grads = wide(params, arch)
        params, arch = jax.tree.map(lambda v, g: v - 0.1 * g, (params, arch), grads)
    pairs = zip(wide(params, arch), narrow(params, arch), strict=True)
    for name, (expected, found) in zip(("W", "architecture"), pairs, strict=True):
        assert np.linalg.norm(flat(expected)) > 0.01  # there is something left to learn
        assert np.corrcoef(flat(expected), flat(found))[0, 1] > 0.99, name


def test_a_coefficient_gets_the_sum_over_all_pixels():
    """A million ones: bfloat16 would stop counting at 256."""
    y = jnp.ones((64, 32, 32, 16), jnp.bfloat16)
    total = jax.grad(lambda w: operations.weigh(w, y).astype(jnp.float32).sum())(jnp.float32(1))
    assert total == y.size


def matrices(*shapes):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes]


def test_emulated_products_round_their_operands():
    """As if the operands, also those of the gradients, were bfloat16, and sums float32."""
    x, w, g = matrices((5, 7), (7, 3), (5, 3))

    def both(x, w):
        y, vjp = jax.vjp(partial(product, jnp.matmul), x, w)
        return (y, *vjp(g))

    x_, w_, g_ = (v.astype(jnp.bfloat16).astype(jnp.float32) for v in (x, w, g))
    rounded = x_ @ w_, g_ @ w_.T, x_.T @ g_
    exact = x @ w, g @ w.T, x.T @ g
    for settings, expected in (
        ({"emulated": True}, rounded),
        ({"emulated": True, "precision": "highest"}, exact),
        ({}, exact),
    ):
        for ours, theirs in zip(only("tpu", both, **settings)(x, w), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)  # float32 sums of 7 terms
    assert np.abs(rounded[0] - exact[0]).max() > 1e-3


def test_precision_reaches_every_product():
    x, w = matrices((2, 8, 8, 4), (4, 4))
    kernel = jnp.ones((3, 3, 4, 4))

    def loss(x, w, kernel):
        return operations.conv(operations.pointwise(x, w), kernel).sum()

    def precisions(name):
        step = only("tpu", jax.grad(loss, argnums=(0, 1, 2)), precision=name)
        return re.findall(r"[ \[]precision=(\S+)", str(jax.make_jaxpr(step)(x, w, kernel)))

    assert set(precisions("default")) == {"None"}
    highest = precisions("highest")
    assert len(highest) >= 5  # two gradients of each product, and a forward pass
    assert all("HIGHEST" in one for one in highest)


def test_logits_are_compared_by_their_size_and_type():
    expected = np.array([[9.0, -1.0]])
    assert agreement.compare(expected + 7e-4, expected, "float32").holds
    assert not agreement.compare(expected + 1e-2, expected, "float32").holds
    assert agreement.compare(expected + 1e-2, expected, "bfloat16").holds
    assert not agreement.compare(expected * np.nan, expected, "bfloat16").holds
    found = agreement.compare(expected + 2, expected, "bfloat16")
    assert str(found) == "by 2 at logits up to 9, which is more than 0.9"
