"""Every search method against a naive computation: coefficients and derived cells."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_methods import EDGES, NODES, STEPS, config_of, make
from tiny_runs import PAPER

from istanas_jax.config.files import ConfigError
from istanas_jax.look.judgement import judge_all
from istanas_jax.methods import METHODS, find_method
from istanas_jax.methods.pdarts import best_candidates, limit_skips
from istanas_jax.methods.tables import SKIP, strongest
from istanas_jax.networks import operations
from istanas_jax.networks.supernet.cell_variables import CellSpec
from istanas_jax.plan import published_sizes
from istanas_jax.space.connections import edge_index
from istanas_jax.space.genotype import Genotype, published, published_parameters
from istanas_jax.space.spaces import DARTS
from istanas_jax.sparse_coding.architecture import coefficients, recover


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def random_alpha(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def training(step=0, seed=3):
    """As much of a TrainState as a method looks at."""
    return SimpleNamespace(step=jnp.int32(step), key=lambda stream: jax.random.key(seed + stream))


def naive_cells(table, s=2):
    """Per node: of each edge the best operation, then the s best edges."""
    cells = []
    for rows in table:
        nodes = []
        for node in range(NODES):
            edges = []
            for predecessor in range(node + 2):
                row = rows[edge_index(node, predecessor)]
                op = max(range(DARTS.num_ops), key=lambda n, row=row: row[n])
                edges.append((row[op], predecessor * DARTS.num_ops + op))
            nodes.append([flat for _, flat in sorted(edges, reverse=True)[:s]])
        cells.append(nodes)
    return cells


def test_the_strongest_of_a_table():
    table = random_alpha(2, EDGES, DARTS.num_ops)
    support, weights = strongest(jnp.asarray(table), replace(DARTS, nodes=NODES))
    assert support.tolist() == naive_cells(table)
    for cell_type, node in np.ndindex(2, NODES):
        predecessor, op = np.divmod(support[cell_type, node], DARTS.num_ops)
        expected = table[cell_type, edge_index(node, 0) + predecessor, op]
        np.testing.assert_array_equal(weights[cell_type, node], expected)


@pytest.mark.parametrize("name", ["darts", "darts_second_order", "snas"])
def test_softmax_methods(name):
    """The zero operation takes its share and has no entry; nothing else is in a snapshot."""
    method = make(name)
    alpha = random_alpha(2, EDGES, 1 + DARTS.num_ops)
    arch = method.with_trainable(method.init_variables(jax.random.key(0)), jnp.asarray(alpha))
    table = softmax(alpha)[..., 1:]
    mixture = method.network_inputs(arch)["mixture"]
    np.testing.assert_allclose(mixture.table, table, rtol=1e-5)
    assert mixture.edges is mixture.drop is None
    shown = method.snapshot(arch)
    assert shown["support"].tolist() == naive_cells(table)
    Genotype.from_supports(*shown["support"].tolist())
    for cell_type, node in np.ndindex(2, NODES):
        z = np.asarray(shown["z"][cell_type, node])
        own = table[cell_type, edge_index(node, 0) : edge_index(node + 1, 0)].ravel()
        np.testing.assert_allclose(z[: own.size], own, rtol=1e-5)
        assert not z[own.size :].any()
        picked = z[np.asarray(shown["support"][cell_type, node])]
        np.testing.assert_array_equal(shown["coefficients"][cell_type, node], picked)


def test_snas_draws_by_gumbel_at_a_falling_temperature():
    method = make("snas", "search.snas.annealing=0.1", "search.snas.final_temperature=0.5")
    alpha = random_alpha(2, EDGES, 1 + DARTS.num_ops)
    arch = method.with_trainable(method.init_variables(jax.random.key(0)), jnp.asarray(alpha))
    for step, temperature in ((0, 2.5), (10, 2.5 * np.exp(-1)), (1000, 0.5)):
        np.testing.assert_allclose(method.temperature(step), temperature, rtol=1e-6)
        noise = np.asarray(jax.random.gumbel(training().key(2), alpha.shape))
        expected = softmax((np.log(softmax(alpha)) + noise) / temperature)[..., 1:]
        drawn = method.network_inputs(arch, training(step))["mixture"].table
        np.testing.assert_allclose(drawn, expected, rtol=1e-4, atol=1e-6)


def test_pc_darts_weighs_edges_and_waits():
    method = make("pc_darts", "search.pc_darts.warmup_epochs=3")
    alpha, beta = random_alpha(2, EDGES, 1 + DARTS.num_ops), random_alpha(2, EDGES, seed=1)
    trained = {"alpha": jnp.asarray(alpha), "beta": jnp.asarray(beta)}
    arch = method.with_trainable(method.init_variables(jax.random.key(0)), trained)
    edges = np.concatenate([softmax(beta[:, :2]), softmax(beta[:, 2:])], 1)
    mixture = method.network_inputs(arch)["mixture"]
    np.testing.assert_allclose(mixture.edges, edges, rtol=1e-5)
    table = edges[..., None] * softmax(alpha)[..., 1:]
    np.testing.assert_allclose(mixture.table, table, rtol=1e-5)
    assert method.snapshot(arch)["support"].tolist() == naive_cells(table)
    assert not method.moves_at(jnp.int32(3 * STEPS - 1))
    assert method.moves_at(jnp.int32(3 * STEPS))
    assert make("pc_darts", "search.pc_darts.warmup_epochs=0").moves_at(jnp.int32(0)) is None


def test_nasp_runs_a_genotype():
    """A hand-made alpha: edges 0 and 1 lead to node 0, edges 2 to 4 to node 1, which drops one."""
    method = make("nasp")
    alpha = np.full((2, EDGES, DARTS.num_ops), 0.1, np.float32)
    best = [[(0, 6), (1, 2), (2, 0), (3, 4), (4, 5)], [(0, 1), (1, 1), (2, 3), (3, 3), (4, 0)]]
    strength = [[0.9, 0.2, 0.5, 0.8, 0.6], [0.3, 0.3, 0.7, 0.2, 0.7]]
    dropped = [2, 3]  # the weakest edge of node 1, of each cell type
    one = np.zeros_like(alpha)
    for cell_type in range(2):
        for (edge, op), value in zip(best[cell_type], strength[cell_type], strict=True):
            alpha[cell_type, edge, op] = value
            one[cell_type, edge, op] = edge != dropped[cell_type]
    arch = method.with_trainable(method.init_variables(jax.random.key(0)), jnp.asarray(alpha))
    assert arch.alpha.shape == method.init_variables(jax.random.key(0)).alpha.shape
    np.testing.assert_allclose(method.network_inputs(arch)["mixture"].table, one, atol=1e-6)

    # The gradient is that at the discrete point, for all entries.
    def loss(alpha):
        table = method.network_inputs(method.with_trainable(arch, alpha))["mixture"].table
        return jnp.sum(jnp.sin(table + 0.3))

    gradient = jax.grad(loss)(arch.alpha)
    np.testing.assert_allclose(gradient, np.cos(one + 0.3), rtol=1e-5)
    moved = method.after_update(arch, arch.alpha + jnp.array([-2.0, 2.0])[:, None, None])
    assert np.all(moved.alpha[0] == 0) and np.all(moved.alpha[1] == 1)

    # W's half and evaluation run the same connections, and they are the genotype.
    for weights in (training(), None):
        inputs = method.network_inputs_for_w(arch, weights)
        assert inputs["support"].tolist() == method.snapshot(arch)["support"].tolist()
        assert np.all(inputs["coefficients"] == 1)
    flats = [[[6, 9], [7 + 4, 14 + 5]], [[1, 8], [3, 14]]]
    assert inputs["support"].tolist() == flats


@pytest.mark.parametrize("implicit", [False, True])
def test_ista_is_judged_by_the_coefficients_it_trains_with(implicit):
    """With z(b), which is not the z of the last recovery once b has moved."""
    method = make("ista", *PAPER, f"search.ista.implicit={implicit}")
    arch = method.init_variables(jax.random.key(0))
    arch = method.after_update(arch, arch.b + 0.3 * np.abs(arch.b).max())
    now = recover(arch, method.coding).code.z if implicit else arch.z
    expected = coefficients(arch.replace(z=now))
    assert implicit == bool(np.abs(expected - coefficients(arch)).max() > 1e-3)
    for found in (
        method.network_inputs(arch, training())["coefficients"],
        method.network_inputs_for_w(arch, training())["coefficients"],
        method.network_inputs_for_w(arch)["coefficients"],
        method.snapshot(arch)["coefficients"],
    ):
        # Two compilations of one LASSO; the coefficients are about 1e-2.
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_pdarts_narrows_and_drops_skips_out():
    overrides = ["search.pdarts.dropout=(0.0, 0.4, 0.7)", "search.pdarts.epochs=4"]
    overrides.append("search.pdarts.warmup_epochs=2")
    first = make("pdarts", *overrides)
    alpha = random_alpha(2, EDGES, 1 + DARTS.num_ops)
    kept = best_candidates(alpha, first.exists, 5)
    second = make("pdarts", *overrides, stage=1, found={"candidates": kept})
    assert (first.stages, first.epochs) == (3, 4)
    for cell_type, edge in np.ndindex(2, EDGES):
        assert set(kept[cell_type][edge]) == set(np.argsort(-alpha[cell_type, edge])[:5])
    arch = second.with_trainable(second.init_variables(jax.random.key(0)), jnp.asarray(alpha))
    expected = softmax(np.where(second.exists, alpha, -np.inf))[..., 1:]
    np.testing.assert_allclose(second.network_inputs(arch)["mixture"].table, expected, rtol=1e-5)
    again = best_candidates(alpha, second.exists, 3)
    assert all(set(a) < set(b) for k in range(2) for a, b in zip(again[k], kept[k], strict=True))
    rates = [float(second.dropout_rate(jnp.int32(epoch * STEPS))) for epoch in range(4)]
    np.testing.assert_allclose(rates, [0.3, 0.2, 0.4, 0.4 * np.exp(-0.2)], rtol=1e-5)
    assert not second.moves_at(jnp.int32(2 * STEPS - 1)) and second.moves_at(jnp.int32(2 * STEPS))


def test_pdarts_ends_with_few_skips():
    table = np.abs(random_alpha(2, EDGES, DARTS.num_ops))
    skip = DARTS.operations.index(SKIP)
    table[:, :, skip] += 10
    support, weights = limit_skips(table, replace(DARTS, nodes=NODES), 1)
    skips = (support % DARTS.num_ops == skip).sum((1, 2))
    assert skips.tolist() == [1, 4]
    # The strongest of the normal cell's four stays, since the weakest goes first.
    picked = support[0] % DARTS.num_ops == skip
    before, _ = strongest(jnp.asarray(table), replace(DARTS, nodes=NODES))
    assert (
        weights[0][picked] == strongest(jnp.asarray(table), replace(DARTS, nodes=NODES))[1][0].max()
    )
    assert support[1].tolist() == before[1].tolist()


def test_random_genotypes_are_drawn_from_the_whole_space():
    method = make("random", "search.epochs=200", "search.random.genotypes=200")
    arch = method.init_variables(jax.random.key(0))
    for node in range(NODES):
        picks = np.asarray(arch.supports[:, :, node])
        assert np.all(picks[..., 0] != picks[..., 1])
        assert set(picks.ravel().tolist()) == set(range(DARTS.num_candidates(node)))
    assert np.all(method.network_inputs(arch)["coefficients"] == 1)
    with pytest.raises(ValueError, match=r"search.epochs 7 cannot be shared equally .* 2"):
        make("random", "search.epochs=7", "search.random.genotypes=2")


def test_what_a_method_does_not_take():
    with pytest.raises(ValueError, match=r"space.s is 3, but darts takes that many"):
        make("darts", "space.s=3")
    with pytest.raises(
        ConfigError, match=r"search.ista.recovery.every means nothing to search.method=darts"
    ):
        config_of("darts", "search.ista.recovery.every=step")
    with pytest.raises(ConfigError, match=r"search.darts.sigma means nothing to .*=ista"):
        config_of("ista", "search.darts.sigma=0.1")
    for size in ("cells", "epochs"):
        with pytest.raises(ConfigError, match=rf"search.{size} means nothing to .*=pdarts"):
            config_of("pdarts", f"search.{size}=5")
    with pytest.raises(ConfigError, match=r"unknown config key search.drop_path"):
        config_of("ista", "search.drop_path=0.1")
    with pytest.raises(ValueError, match="'dart', there are: ista, darts"):
        find_method("dart")
    regime = operations.REGIMES["search"]
    with pytest.raises(ValueError, match="operations see one in 4 of 6 channels"):
        CellSpec(6, False, replace(DARTS, nodes=NODES), regime, partial=4)
    with pytest.raises(ValueError, match=r"4 channels, .* an even number of channels"):
        CellSpec(4, True, replace(DARTS, nodes=NODES), regime, partial=4)
    assert set(METHODS) - {"ista"} == {
        *("darts", "darts_second_order", "pc_darts", "snas", "nasp", "pdarts", "random"),
        *("gdas", "drnas"),
    }


def test_published_cells_beside_the_paper():
    rows = published_sizes.describe_all()
    assert len(rows) == 2 * len(published())
    for row in rows:
        counts = published_parameters(row["name"])
        if not row["one_stage"]:
            assert row["parameters"] == counts[row["net"] == "imagenet"]
    text = published_sizes.table(rows)
    assert "637,963,432" in text and "638 M" in text  # the same network
    assert sum(row["paper"] is not None for row in rows) == 14


def test_published_cells_before_the_judge():
    """It declines cells of other operations or nodes, and nets that are not CIFAR-10's."""
    judged = {row["name"] for row in published_sizes.describe_all() if row["percentile"]}
    assert judged == published().keys() - {"NASNet_A", "AmoebaNet_A"}
    (line,) = judge_all(["SNAS"])
    text = published_sizes.table(published_sizes.describe_all())
    assert f" {line['percentile']:.1f}%" in next(x for x in text.splitlines() if "SNAS" in x)
