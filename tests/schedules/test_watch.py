"""Collapse is seen: hand-made sequences of cells, and a search that its rules stop."""

import json
import signal

import pytest
from tiny_runs import rows, timeless, tiny

from istanas_jax.judge import regression
from istanas_jax.networks.operations import REGIMES, weight_shapes
from istanas_jax.runs.interrupts import Interrupted
from istanas_jax.schedules import two_stage, watch
from istanas_jax.schedules.search import Search
from istanas_jax.space.genotype import load
from istanas_jax.space.operations import find_operation
from istanas_jax.space.spaces import DARTS

SKIP, CONV = DARTS.operations.index("skip_connect"), DARTS.operations.index("sep_conv_3x3")
OFF = watch.Rules(warning=0.6, weight_free=0, unchanged_epochs=0)


def cells(free: int) -> list:
    """A normal cell with so many connections without weights, of 8; a reduction cell with none."""
    ops = [SKIP] * free + [CONV] * (8 - free)
    normal = [[ops[2 * node], 7 + ops[2 * node + 1]] for node in range(4)]
    return [normal, [[CONV, 7 + CONV]] * 4]


def through(sequence, rules):
    """Memory and sentences after each epoch; the first cells are those of the start."""
    memory, told = watch.remember({}, sequence[0]), []
    for supports in sequence[1:]:
        memory, said = watch.follow(memory, supports, rules)
        memory = json.loads(json.dumps(memory))  # as a checkpoint keeps it
        told.append(said)
        if "stopped" in memory:
            break
    return memory, told


def test_weight_free_operations_have_no_weights_at_stride_1():
    """But for the scales of batch norms."""
    for op in DARTS.operations:
        shapes = weight_shapes(op, 8, 1, REGIMES["search"])
        assert (not shapes) == find_operation(op).weight_free
    assert [DARTS.weight_free(cell) for cell in cells(5)] == [5, 0]


def test_growth_past_the_limit_is_said_once():
    _, told = through([cells(n) for n in (2, 3, 5, 6, 7, 4, 8)], OFF)
    assert [bool(said) for said in told] == [False, True, False, False, False, False]
    assert "warning: 5 of 8 connections of the normal cell have no weights, 2 had none" in told[1]


def test_a_start_without_weights_is_not_growth():
    _, told = through([cells(n) for n in (6, 6, 5, 6)], OFF)
    assert told == [None, None, None]
    _, told = through([cells(n) for n in (6, 7)], OFF)
    assert "7 of 8" in told[0]
    _, told = through([cells(n) for n in (0, 8)], watch.Rules(1.0, 0, 0))
    assert told == [None]


def test_stop_by_connections_without_weights():
    memory, told = through([cells(n) for n in (2, 5, 6, 7)], watch.Rules(1.0, 6, 0))
    assert len(told) == 2
    assert memory["stopped"] == "6 of 8 connections of the normal cell have no weights"
    assert told[-1] == f"the search stops: {memory['stopped']}"


def test_stop_by_an_unchanged_support():
    sequence = [cells(n) for n in (2, 3, 3, 2, 2, 2, 2)]
    memory, told = through(sequence, watch.Rules(1.0, 0, 3))
    assert len(told) == 6 and memory["unchanged_epochs"] == 3
    assert memory["stopped"] == "the support has not changed for 3 epochs"
    assert "stopped" not in through(sequence, watch.Rules(1.0, 0, 4))[0]


def test_the_order_of_strength_is_no_change():
    turned = [[list(reversed(node)) for node in cell] for cell in cells(3)]
    assert through([cells(3), turned], OFF)[0]["unchanged_epochs"] == 1


def test_the_judge_is_asked_where_it_applies():
    supports = load("PC_DARTS_cifar").supports()
    found = watch.seen(supports)
    assert found["percentile"] == round(regression.judge_supports(supports).percentile, 1)
    assert found["weight_free"] == [2, 1]
    two_nodes = [cell[:2] for cell in cells(1)]
    assert watch.seen(two_nodes) == {"weight_free": [1, 0]}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """b does not move, so the support stays: the search ends after 2 of its 5 epochs."""
    folder = tmp_path_factory.mktemp("runs") / "straight"
    return folder, two_stage.search(config(), folder)


def config():
    return tiny(
        "search.epochs=5", "search.stop.unchanged_epochs=2", "search.ista.adam.learning_rate=1e-9"
    )


@pytest.mark.slow
def test_a_stopped_search_ends_in_order(stopped, capsys):
    folder, best = stopped
    assert best["stopped"] == "the support has not changed for 2 epochs"
    assert best["epochs"] == 2
    metrics = rows(folder)
    assert [row["unchanged_epochs"] for row in metrics] == [1, 2]
    replay = rows(folder, "replay.jsonl")
    for row in replay:
        assert row["weight_free"] == list(map(DARTS.weight_free, row["support"]))
        assert "percentile" not in row  # two nodes
    last = {key: metrics[-1][key] for key in ("weight_free_normal", "weight_free_reduction")}
    assert list(last.values()) == replay[-1]["weight_free"]
    assert (folder / "report.html").exists()


@pytest.mark.slow
def test_a_stopped_search_killed_and_resumed(stopped, tmp_path, monkeypatch, capsys):
    """In its last epoch, and again after it was stopped and before the result was written."""
    folder, best = stopped
    before, result = Search.before, Search.result

    def dies(task, state, step):
        if step == task.steps_per_epoch + 1:
            signal.raise_signal(signal.SIGTERM)
        return before(task, state, step)

    def dies_later(task, *args):
        result(task, *args)
        raise Interrupted("killed", 15)

    for name, fault in (("before", dies), ("result", dies_later)):
        with monkeypatch.context() as patched:
            patched.setattr(Search, name, fault)
            with pytest.raises(Interrupted):
                two_stage.search(config(), tmp_path)
    capsys.readouterr()
    again = two_stage.search(config(), tmp_path)
    assert "continuing from" not in capsys.readouterr().out
    assert again | {"seconds": 0} == best | {"seconds": 0}
    assert timeless(tmp_path) == timeless(folder)
    assert rows(tmp_path, "replay.jsonl") == rows(folder, "replay.jsonl")
