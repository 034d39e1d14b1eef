"""Latency budgets: on tables made by hand, and in a run, which measures once and remembers."""

import json
import signal
from dataclasses import replace

import numpy as np
import pytest
from tiny_runs import tiny

from istanas_jax.bench.costs.latency import spearman
from istanas_jax.methods.budget import Budget
from istanas_jax.networks import latency
from istanas_jax.networks.latency import latencies
from istanas_jax.networks.operation_times import edge_shapes
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.runs.interrupts import Interrupted
from istanas_jax.schedules import two_stage
from istanas_jax.schedules.search import Search
from istanas_jax.space.connections import stride_of
from istanas_jax.space.genotype import Genotype, random_genotype
from istanas_jax.space.spaces import DARTS

SIZES = {"classes": 10, "cells": 3, "channels": 4}
SPACE = replace(DARTS, nodes=2)


def made_up(net, image_size=32, base=1.0, factor=2.0):
    """A table in which an operation takes 1 + its number, times its stride, times its pixels."""
    rows = [
        {"operation": op, **shape._asdict(), "ms": (1 + n) * shape.stride * shape.size}
        for shape in edge_shapes(net, image_size, SPACE.nodes)
        for n, op in enumerate(SPACE.operations)
    ]
    return {"batch": 1, "operations": rows, "base_ms": base, "factor": factor}


def by_hand(genotype) -> float:
    """The sum over the three cells of 32 pixels: a normal one and two reductions."""
    total = 0.0
    for cell, reduction, outer in (
        (genotype.normal, False, 32),
        (genotype.reduce, True, 32),
        (genotype.reduce, True, 16),
    ):
        for op, predecessor in (pick for node in cell for pick in node):
            stride = stride_of(predecessor, reduction)
            inner = outer // 2 if reduction else outer
            size = outer if predecessor < 2 else inner
            total += (1 + SPACE.operations.index(op)) * stride * size
    return 1.0 + 2.0 * total


def test_a_prediction_is_the_sum_over_all_connections():
    net = TargetNet(random_genotype(0, SPACE), **SIZES)
    table = latencies(made_up(net), net, 32, SPACE)
    for seed in range(5):
        genotype = random_genotype(seed, SPACE)
        assert table.of(genotype) == pytest.approx(by_hand(genotype))


def test_a_budget_keeps_to_the_table_and_to_the_other_limits():
    """Two nodes are few enough to try what a budget may pick at one node, all else as it is."""
    net = TargetNet(random_genotype(0, SPACE), **SIZES)
    table = latencies(made_up(net), net, 32, SPACE)
    rng = np.random.default_rng(0)
    for _ in range(5):
        strength = rng.random((2, SPACE.nodes, SPACE.max_candidates))
        strength[:, 0, 14:] = 0
        wanted = np.argsort(-strength, axis=-1)[..., :2]
        limit = 0.8 * table.of(Genotype.from_supports(*wanted.tolist(), SPACE))
        budget = Budget(net, 32, space=SPACE, limits=(0, 0, limit), latencies=table)
        chosen, decided = budget.choose(strength, wanted, np.zeros((2, SPACE.nodes), bool))
        assert decided and by_hand(Genotype.from_supports(*chosen.tolist(), SPACE)) <= limit
        score = lambda support: np.take_along_axis(strength, support, -1).sum()  # noqa: B023, E731
        for k, j in np.ndindex(2, SPACE.nodes):
            for picks in budget.picks[k][j]:
                other = chosen.copy()
                other[k, j] = picks
                if by_hand(Genotype.from_supports(*other.tolist(), SPACE)) <= limit:
                    assert score(other) <= score(chosen) + 1e-9
        size = budget.total(chosen)[0] - 1
        both = Budget(net, 32, space=SPACE, limits=(size, 0, limit), latencies=table)
        smaller, _ = both.choose(strength, chosen, np.zeros((2, SPACE.nodes), bool))
        assert np.all(both.total(smaller) <= both.limits)


def test_a_budget_that_no_network_keeps():
    net = TargetNet(random_genotype(0, SPACE), **SIZES)
    table = latencies(made_up(net), net, 32, SPACE)
    words = r"max_latency_ms is 1\.5, but the fastest network takes \d+ ms here"
    with pytest.raises(ValueError, match=words):
        Budget(net, 32, space=SPACE, limits=(0, 0, 1.5), latencies=table)


def test_the_line_through_measured_networks():
    x = np.array([1.0, 2.0, 4.0])
    assert latency._line(x, 3 + 0.5 * x) == pytest.approx((3.0, 0.5))
    base, factor = latency._line(x, np.array([5.0, 5.0, 4.0]))  # noise: never a falling line
    assert factor == latency.LEAST_FACTOR and base > 0


def test_ranks():
    rows = [{"predicted_ms": x, "measured_ms": y} for x, y in ((1, 10), (2, 11), (3, 30), (4, 20))]
    assert spearman(rows) == pytest.approx(0.8)  # 1 - 6 * 2 / (4 * 15)
    assert spearman(rows[:3]) == pytest.approx(1.0)


@pytest.mark.slow
def test_a_run_measures_once_and_remembers(tmp_path, monkeypatch, capsys):
    """Killed, and started again on a machine that would measure other times: the same cells."""
    config = tiny("search.ista.budget.max_latency_ms=1e6", "train.epochs=1")
    measured = []

    def measure(net, image_size, batch, **_):
        measured.append(batch)
        # The second machine finds everything so slow that no network would keep the budget.
        return made_up(net, image_size, base=1e9 if len(measured) > 1 else 1.0)

    monkeypatch.setattr("istanas_jax.methods.budget.measure", measure)
    monkeypatch.setattr(latency, "net_ms", lambda *_, **__: 12.5)
    before = Search.before

    def dies(task, state, step):
        if step == 3:
            signal.raise_signal(signal.SIGTERM)
        return before(task, state, step)

    with monkeypatch.context() as patched:
        patched.setattr(Search, "before", dies)
        with pytest.raises(Interrupted):
            two_stage.run(config, tmp_path / "run")
    table = json.loads((tmp_path / "run" / "latency.json").read_text())
    result = two_stage.run(config, tmp_path / "run")
    assert measured == [1] and json.loads((tmp_path / "run" / "latency.json").read_text()) == table
    found = result["latency"]
    net = TargetNet(random_genotype(0, SPACE), classes=10, cells=1, channels=4)
    size = int(config.data.image_size) or 8
    genotype = Genotype.from_dict(result["genotype"])
    channels = config.train.channels
    predicted = latencies(table, net.clone(channels=channels), size, SPACE).of(genotype)
    assert found == {"predicted_ms": pytest.approx(predicted), "measured_ms": 12.5, "batch": 1}
    assert "12.5 ms" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.slow
def test_what_is_measured_can_be_used():
    """Real times of a tiny network: they depend on the machine, so only their form is certain."""
    net = TargetNet(random_genotype(0, SPACE), classes=3, cells=1, channels=4)
    found = latency.measure(net, 8, 2, space=SPACE, seconds=0.0)
    json.dumps(found)
    shapes = edge_shapes(net, 8, SPACE.nodes)
    assert len(found["operations"]) == len(shapes) * SPACE.num_ops
    assert all(row["ms"] >= 0 for row in found["operations"]) and found["factor"] > 0
    identity = [r for r in found["operations"] if (r["operation"], r["stride"]) == IDENTITY]
    assert [row["ms"] for row in identity] == [0.0]
    table = latencies(found, net, 8, SPACE)
    assert table.of(net.genotype) >= table.base >= 0


IDENTITY = ("skip_connect", 1)
