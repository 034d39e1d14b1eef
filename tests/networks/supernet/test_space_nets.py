"""In every space the dynamic net is the dense one: equal losses, gradients and statistics."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from istanas_jax.networks.counting import count_supernet
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.supernet.static import select_variables, static_net
from istanas_jax.networks.target_net import cell_name
from istanas_jax.networks.variables import init_variables
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.spaces import read_space
from istanas_jax.sparse_coding.architecture import Coding, draw_support

pytestmark = pytest.mark.slow

# Those of DARTS-Bench-Suite have the operations of `darts` or `darts_no_skip`, but for all_skip.
NAMES = ("darts_no_skip", "nas_bench_201", "s1", "s2", "s3", "s4", "wide_all_skip")
TINY = {name: read_space({"name": name, "nodes": 2}) for name in NAMES}
TINY["uneven"] = replace(TINY["s2"], s=(1, 3))
LABELS = np.array([0, 3, 1, 2])


@pytest.mark.parametrize("name", TINY)
def test_dynamic_equals_dense_and_static(name):
    space = TINY[name]
    # A reduction cell: operations of both strides.
    net = SuperNet(classes=4, cells=1, channels=4, space=space, regime="one_stage")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 8, 8, 3)).astype(np.float32)
    support = np.asarray(draw_support(jax.random.key(1), Coding(space=space)))
    coefficients = rng.standard_normal(support.shape).astype(np.float32)
    variables = init_variables(net, jax.random.key(0), x, support, coefficients, train=False)

    def loss(apply, variables, coefficients):
        (logits, _), moved = apply(variables, coefficients)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, LABELS)
        return losses.mean(), moved["batch_stats"]

    def run(dense, variables, coefficients):
        run = partial(net.apply, train=True, dense=dense, mutable="batch_stats")
        return loss(lambda v, w: run(v, x, support, w), variables, coefficients)

    def of_static(variables, coefficients):
        static = static_net(net, supports)
        run = partial(static.apply, train=True, mutable="batch_stats")
        return loss(lambda v, w: run(v, x, coefficients=w), variables, coefficients)

    grad = partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
    split = lambda found: (found[0], found[1])  # noqa: E731
    (dynamic, grads), (dense, grads_d) = (
        split(jax.jit(grad(partial(run, dense)))(variables, coefficients)) for dense in (0, 1)
    )
    # Sums of float32 in another order.
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=2e-5), dynamic, dense)
    largest = max(float(jnp.abs(g).max()) for g in jax.tree.leaves(grads_d))
    close = partial(np.testing.assert_allclose, atol=1e-4 * largest)
    jax.tree.map(close, grads, grads_d)

    supports = Genotype.from_supports(*support.tolist(), space).supports(space)
    chosen = select_variables(variables, net, supports)
    (static, _), (_, dcoefficients) = jax.jit(grad(of_static))(chosen, coefficients)
    np.testing.assert_allclose(static, dynamic[0], atol=1e-5)
    close(dcoefficients, grads[1])
    beyond = np.array([[k >= space.kept(j) for k in range(space.most)] for j in range(2)])
    assert not np.any(np.asarray(grads[1])[:, beyond])
    assert count_supernet(net, support, 8).parameters == sum(
        leaf.size for leaf in jax.tree.leaves(chosen["params"])
    )


def test_auxiliary_skips_are_skips_of_weight_one():
    """With coefficients of 0 they alone are left: a net of DARTS that has chosen them all."""
    x = np.random.default_rng(0).standard_normal((4, 8, 8, 3)).astype(np.float32)
    both = {}
    for name in ("wide_all_skip", "wide"):
        space = read_space({"name": name, "nodes": 2})
        net = SuperNet(classes=4, cells=1, channels=5, space=space)
        skips = Genotype(*[[[("skip_connect", 0), ("skip_connect", 1)]] * 2, (2, 3)] * 2)
        support = np.array(skips.supports(space))
        coefficients = np.full(support.shape, name == "wide", np.float32)
        variables = init_variables(net, jax.random.key(0), x, support, coefficients, train=False)
        both[name] = net, variables, support, coefficients

    ours, theirs = (both[name][1]["params"] for name in ("wide", "wide_all_skip"))
    cell, of = ours[cell_name(0)], theirs[cell_name(0)]
    cell["edges_from_inputs"]["skip_connect"] = of["edges_from_inputs"]["auxiliary_skip"]
    ours |= {part: theirs[part] for part in ("stem", "classifier")}
    cell |= {part: of[part] for part in ("pre0", "pre1")}
    logits = {
        name: net.apply(variables, x, support, w, train=True, mutable="batch_stats")[0][0]
        for name, (net, variables, support, w) in both.items()
    }
    np.testing.assert_allclose(logits["wide_all_skip"], logits["wide"], atol=1e-6)
    assert np.abs(logits["wide"]).max() > 0.01


def test_noise_and_zero():
    """Noise is not of its input, and zero is nothing; both are half as large at stride 2."""
    from istanas_jax.networks import operations
    from istanas_jax.networks.batch_norm import Mode, init_stats

    apply = partial(operations.apply_op, stats=init_stats(0, 3), mode=Mode(train=True))
    x = jnp.ones((64, 8, 8, 3))
    y, _ = apply("none", x, {}, stride=2)
    assert y.shape == (64, 4, 4, 3) and not np.any(y)
    key = {"noise0": jnp.array([[0.3]])}
    first, _ = apply("noise", x, key, stride=1)
    same, _ = apply("noise", 2 * x, key, stride=1)
    np.testing.assert_array_equal(first, same)
    other, _ = apply("noise", x, {"noise0": key["noise0"] * (1 - 1e-6)}, stride=1)
    values = np.ravel(first)
    # 12,288 standard normal numbers: four standard deviations of their mean and variance.
    assert abs(values.mean()) < 4 / np.sqrt(values.size)
    assert abs(values.var() - 1) < 4 * np.sqrt(2 / values.size)
    assert abs(np.corrcoef(values, np.ravel(other))[0, 1]) < 4 / np.sqrt(values.size)
    assert apply("noise", x, key, stride=2)[0].shape == (64, 4, 4, 3)
