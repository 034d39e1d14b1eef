"""Dynamic, static and dense are one network: equal losses, gradients and statistics."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from istanas_jax.networks.counting import count_supernet
from istanas_jax.networks.supernet.net import SuperNet, keep_inactive
from istanas_jax.networks.supernet.static import merge_variables, select_variables, static_net
from istanas_jax.networks.variables import init_variables
from istanas_jax.space.spaces import DARTS

pytestmark = pytest.mark.slow

# A normal and two reduction cells of two nodes, whose second has inputs and a node before it.
TINY = {"classes": 10, "cells": 3, "channels": 4, "space": replace(DARTS, nodes=2)}
NETS = {
    "search": SuperNet(**TINY),
    # One cell, a reduction, has what this regime adds at both strides.
    "one_stage": SuperNet(**TINY | {"cells": 1}, regime="one_stage"),
}


def random_support(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    nodes = [rng.choice(DARTS.num_candidates(j % 2), 2, replace=False) for j in range(4)]
    return np.array(nodes, np.int32).reshape(2, 2, 2)


def tuples(support: np.ndarray):
    return tuple(tuple(map(tuple, cell.tolist())) for cell in support)


# Both picks of a node on one predecessor, an input and a node.
SHARED_PREDECESSOR = np.array([[[0, 3], [16, 20]]] * 2, np.int32)
SUPPORTS = [random_support(0), random_support(1), SHARED_PREDECESSOR]


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 16, 16, 3)).astype(np.float32)
    return x, rng.integers(0, 10, 4), rng.standard_normal((2, 2, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def variables(batch):
    """Variables of both nets; all weights and statistics differ from their first values."""
    x, _, coefficients = batch

    def init(net, key):
        fresh = init_variables(net, key, x, SUPPORTS[0], coefficients, train=False)
        leaves, tree = jax.tree.flatten(fresh)
        rng = np.random.default_rng(1)
        return jax.tree.unflatten(tree, [v + 0.1 * rng.random(v.shape, "f") for v in leaves])

    return {name: init(net, jax.random.key(1)) for name, net in NETS.items()}


def loss_of(apply):
    def loss(params, coefficients, stats, x, labels, *rest):
        variables = {"params": params, "batch_stats": stats}
        (logits, _), moved = apply(variables, x, coefficients, *rest)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.mean(), moved["batch_stats"]

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))


def super_loss(net: SuperNet, dense: bool):
    def apply(variables, x, coefficients, support):
        return net.apply(
            variables, x, support, coefficients, train=True, dense=dense, mutable="batch_stats"
        )

    return loss_of(apply)


STEPS = {(name, dense): super_loss(net, dense) for name, net in NETS.items() for dense in (0, 1)}


def run(name, dense, variables, batch, support):
    x, labels, coefficients = batch
    v = variables[name]
    return STEPS[name, dense](v["params"], coefficients, v["batch_stats"], x, labels, support)


def assert_close(ours, theirs, relative):
    """Each leaf to a fraction of the largest entry of all."""
    largest = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(theirs))
    for path, leaf in jax.tree.leaves_with_path(ours):
        other = theirs
        for key in path:
            other = other[key.key]
        np.testing.assert_allclose(leaf, other, atol=relative * largest, rtol=0, err_msg=str(path))


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("number", range(len(SUPPORTS)))
def test_dynamic_equals_dense(name, number, variables, batch):
    (loss, stats), (dparams, dcoefficients) = run(name, 0, variables, batch, SUPPORTS[number])
    (loss_d, stats_d), (dparams_d, dcoef_d) = run(name, 1, variables, batch, SUPPORTS[number])
    np.testing.assert_allclose(loss, loss_d, atol=1e-5)  # sums of float32 in another order
    np.testing.assert_allclose(dcoefficients, dcoef_d, atol=1e-4 * np.abs(dcoef_d).max())
    assert_close(dparams, dparams_d, 1e-4)
    assert_close(stats, stats_d, 1e-5)


@pytest.mark.parametrize("name", NETS)
def test_static_equals_dynamic(name, variables, batch):
    net, (x, labels, coefficients) = NETS[name], batch
    support = SUPPORTS[0]
    supports = tuples(support)
    static = static_net(net, supports)
    chosen = select_variables(variables[name], net, supports)
    fresh = jax.eval_shape(partial(static.init, train=False), jax.random.key(0), x)
    assert jax.tree.map(jnp.shape, chosen) == jax.tree.map(jnp.shape, fresh)

    def apply(variables, x, coefficients):
        return static.apply(
            variables, x, train=True, coefficients=coefficients, mutable="batch_stats"
        )

    step = loss_of(apply)
    (loss_s, stats_s), (dparams_s, dcoef_s) = step(
        chosen["params"], coefficients, chosen["batch_stats"], x, labels
    )
    (loss, stats), (dparams, dcoef) = run(name, 0, variables, batch, support)
    np.testing.assert_allclose(loss_s, loss, atol=1e-5)  # sums of float32 in another order
    np.testing.assert_allclose(dcoef_s, dcoef, atol=1e-4 * np.abs(dcoef).max())
    selected = select_variables({"params": dparams, "batch_stats": stats}, net, supports)
    assert_close(dparams_s, selected["params"], 1e-4)
    assert_close(stats_s, selected["batch_stats"], 1e-5)

    merged = merge_variables({"params": dparams, "batch_stats": stats}, selected, net, supports)
    assert jax.tree.all(jax.tree.map(np.array_equal, merged["params"], dparams))
    assert jax.tree.all(jax.tree.map(np.array_equal, merged["batch_stats"], stats))


@pytest.mark.parametrize("name", NETS)
def test_only_the_support_moves(name, variables, batch):
    """Inactive weights get a gradient of exactly 0, inactive statistics keep their bits."""
    net, support = NETS[name], SUPPORTS[1]
    supports = tuples(support)
    (_, stats), (dparams, _) = run(name, 0, variables, batch, support)
    before = variables[name]["batch_stats"]
    active = {"params": dparams, "batch_stats": stats}
    zeros = jax.tree.map(jnp.zeros_like, active)
    kept = merge_variables(zeros, select_variables(active, net, supports), net, supports)
    assert jax.tree.all(jax.tree.map(np.array_equal, kept["params"], dparams))
    gained = jax.tree.map(lambda a, b: a != b, stats, before)
    allowed = jax.tree.map(lambda a: a != 0, kept["batch_stats"])
    assert jax.tree.all(jax.tree.map(lambda g, a: not (g & ~a).any(), gained, allowed))
    assert any(g.any() for g in jax.tree.leaves(gained))


@pytest.mark.parametrize("name", NETS)
def test_only_active_weights_are_updated(name, variables):
    """`keep_inactive` takes the new values exactly where `selection` finds active ones."""
    net, support = NETS[name], SUPPORTS[2]
    before = jax.tree.map(jnp.zeros_like, variables[name]["params"])
    after = jax.tree.map(jnp.ones_like, before)
    moved = keep_inactive(net, support, before, after)
    stats = variables[name]["batch_stats"]
    new = {"params": after, "batch_stats": stats}
    chosen = select_variables(new, net, tuples(support))
    expected = merge_variables(
        {"params": before, "batch_stats": stats}, chosen, net, tuples(support)
    )
    assert jax.tree.all(jax.tree.map(np.array_equal, moved, expected["params"]))


def test_changing_the_support_compiles_nothing(variables, batch):
    step = STEPS["search", 0]
    run("search", 0, variables, batch, SUPPORTS[0])
    before = step._cache_size()
    losses = {float(run("search", 0, variables, batch, random_support(s))[0][0]) for s in range(20)}
    assert step._cache_size() == before
    assert len(losses) == 20


def test_stretches_are_scanned_and_equal_to_static(batch):
    """Eleven cells: runs of cells of one shape are one scan."""
    x, _, coefficients = batch
    net, support = SuperNet(**TINY | {"cells": 11}), SUPPORTS[0]
    variables = init_variables(net, jax.random.key(0), x, support, coefficients, train=False)
    evaluate = partial(net.apply, train=False)
    jaxpr = jax.make_jaxpr(evaluate)(variables, x, support, coefficients)
    assert sum(eqn.primitive.name == "scan" for eqn in jaxpr.eqns) == 2

    supports = tuples(support)
    chosen = select_variables(variables, net, supports)
    logits, _ = jax.jit(evaluate)(variables, x, support, coefficients)
    static = jax.jit(partial(static_net(net, supports).apply, train=False))
    logits_s, _ = static(chosen, x, coefficients=coefficients)
    np.testing.assert_allclose(logits, logits_s, atol=1e-5)  # sums of float32 in another order


@pytest.mark.parametrize("dense", [False, True])
def test_evaluation_uses_running_statistics(dense, variables, batch):
    x, _, coefficients = batch
    apply = jax.jit(partial(NETS["search"].apply, train=False, dense=dense))
    logits, auxiliary = apply(variables["search"], x, SUPPORTS[0], coefficients)
    assert auxiliary is None
    others = np.concatenate([x[:1], 3 * x[:0:-1] + 1])
    among_others = apply(variables["search"], others, SUPPORTS[0], coefficients)[0]
    np.testing.assert_allclose(among_others[0], logits[0], atol=1e-5)  # no sample sees another
    assert np.abs(among_others[1:] - logits[1:]).max() > 1e-2


def test_bfloat16_is_near_float32(variables, batch):
    x, _, coefficients = batch
    args = (variables["one_stage"], x, SUPPORTS[0], coefficients)
    wide = jax.jit(partial(NETS["one_stage"].apply, train=False))(*args)[0]
    net = NETS["one_stage"].clone(dtype="bfloat16")
    narrow = jax.jit(partial(net.apply, train=False))(*args)[0]
    assert narrow.dtype == jnp.float32
    # bfloat16 has 8 bits; a cell of a few operations in a row.
    np.testing.assert_allclose(narrow, wide, atol=0.1 * np.abs(wide).max())


def test_one_channel_and_odd_sizes(batch):
    net = SuperNet(**TINY | {"classes": 3}, image_channels=1)
    x = np.random.default_rng(0).standard_normal((2, 9, 9, 1)).astype(np.float32)
    variables = init_variables(net, jax.random.key(0), x, SUPPORTS[0], batch[2], train=False)
    logits, _ = jax.jit(partial(net.apply, train=False))(variables, x, SUPPORTS[0], batch[2])
    assert logits.shape == (2, 3)
    assert np.isfinite(logits).all()


def test_shrunk_images_are_means_of_squares(batch, variables):
    x, _, coefficients = batch
    net, inputs = NETS["one_stage"], (SUPPORTS[0], coefficients)
    small = np.stack([[x[:, i : i + 2, j : j + 2].mean((1, 2)) for j in range(0, 16, 2)]
                      for i in range(0, 16, 2)])  # fmt: skip
    logits, _ = net.apply(variables["one_stage"], small.transpose(2, 0, 1, 3), *inputs, train=False)
    shrunk, _ = net.clone(shrink=2).apply(variables["one_stage"], x, *inputs, train=False)
    # Means of four in another order.
    np.testing.assert_allclose(shrunk, logits, atol=1e-4)
    assert count_supernet(net.clone(shrink=2), image_size=16) == count_supernet(net, image_size=8)
    with pytest.raises(ValueError, match="sees images as they are"):
        static_net(net.clone(shrink=2), tuples(SUPPORTS[0]))
