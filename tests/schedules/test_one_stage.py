"""The one-stage schedule: what freezes when, and the switch to the static net."""

import json
import signal
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict
from places import ROOT

from istanas_jax.config.files import load_config
from istanas_jax.methods.ista import IstaState, epoch_step
from istanas_jax.networks import agreement
from istanas_jax.networks.target_net import init_target
from istanas_jax.runs import loop, metrics
from istanas_jax.runs.folder import REPLAY
from istanas_jax.runs.interrupts import Interrupted
from istanas_jax.runs.session import open_session
from istanas_jax.runs.trained_network import load_trained
from istanas_jax.schedules import one_stage, search
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.search import OneStageSearch
from istanas_jax.schedules.training import TrainTask
from istanas_jax.space.genotype import random_genotype
from istanas_jax.space.spaces import DARTS
from istanas_jax.sparse_coding.architecture import (
    ArchState,
    Coding,
    Freezing,
    coefficients,
    settled,
)
from istanas_jax.training.states import Totals

pytestmark = pytest.mark.slow
KEPT = Coding(whole_distance=False)
SMALL = [
    "space.nodes=2",
    "search.cells=1",
    "train.cells=1",
    "search.epochs=4",
    "train.epochs=2",
    "data.max_images=70",
    "search.ista.adam.learning_rate=0.02",
    "search.ista.freeze.epsilon=0.05",
]


def tiny(*overrides):
    spec = str(ROOT / "configs" / "digits.py:one_stage_tiny")
    return load_config(spec, [f"--config.{override}" for override in [*SMALL, *overrides]])


def state_with(z, frozen=None):
    """A search state of which only the architecture matters; two nodes, top 1."""
    z = jnp.asarray(z, jnp.float32)[None]
    nodes, n = z.shape[1:]
    arch = ArchState(
        b=jnp.zeros((1, nodes, 3)),
        A=jnp.zeros((1, nodes, 3, n)),
        z=z,
        support=jnp.argmax(jnp.abs(z), -1)[..., None].astype(jnp.int32),
        frozen=jnp.zeros((1, nodes), bool) if frozen is None else frozen,
    )
    return IstaState(None, arch, (), Totals.zero(), settled(arch, KEPT), jnp.zeros((), jnp.int32))


def test_freezing_on_a_sequence_of_z():
    """A node freezes when the top entries of z move by epsilon or less from epoch to epoch."""
    rest = partial(epoch_step, coding=KEPT, freezing=Freezing("node", 1e-3))
    sequence = [  # per epoch, of node 0 and of node 1
        [[0.5, 0.1, 0.0], [0.2, 0.0, 0.0]],
        [[0.5, 0.3, 0.0], [0.21, 0.0, 0.0]],  # node 0: only an entry that is not kept moved
        [[0.7, 0.3, 0.0], [0.2095, 0.0, 0.0]],  # node 1 by 5e-4
        [[0.7, 0.3, 0.0], [0.9, 0.0, 0.0]],
    ]
    expected = [[True, False], [True, True], [True, True]]
    distances = [[0.0, 0.01], [0.2, 5e-4], [0.0, 0.6905]]
    state = state_with(sequence[0])
    for z, frozen, distance in zip(sequence[1:], expected, distances, strict=True):
        fresh = state_with(z, state.arch.frozen)
        state, moved = rest(state.replace(arch=fresh.arch))
        np.testing.assert_allclose(moved[0], distance, atol=1e-6)
        np.testing.assert_array_equal(state.arch.frozen[0], frozen)
    still = state_with(sequence[0])
    never = epoch_step(still, coding=KEPT, freezing=Freezing("node", 0.0))[0]
    assert not never.arch.frozen.any()
    assert rest(still)[0].arch.frozen.all()
    # All entries count, as in the release: node 0 has moved in the second epoch.
    whole = Coding(whole_distance=True)
    state = still.replace(arch=state_with(sequence[1]).arch, z_epoch=still.arch.z)
    state, moved = epoch_step(state, coding=whole, freezing=Freezing("node", 1e-3))
    np.testing.assert_allclose(moved[0], [0.2, 0.01], atol=1e-6)
    assert not state.arch.frozen.any()


@pytest.fixture(scope="module")
def joint(tmp_path_factory):
    """A compiled one-stage search and its first state."""
    config = tiny()
    with open_session(config, tmp_path_factory.mktemp("one") / "run") as session:
        task = OneStageSearch(config, session.dataset, session.devices)
        task.begin(0)
        state = session.devices.replicate(task.start())
        task.compile(state)
    return task, jax.device_get(state)


def steps(task, state, count):
    state = task.devices.replicate(state)
    for batch in list(task.batches(0, 0))[:count]:
        state, _ = task.step(state, *map(task.devices.split, batch))
    return jax.device_get(state)


def changed_norms(before, after):
    """Paths of scales and shifts of operations that differ, with the edges where they do."""
    old, new = flatten_dict(before.weights.params), flatten_dict(after.weights.params)
    found = {}
    for path, value in new.items():
        if path[0].startswith("cell") and path[1].startswith("edges"):
            moved = np.any(value != old[path], axis=tuple(range(1, value.ndim)))
            if path[-1].startswith(("scale", "shift")) and moved.any():
                found[path] = np.flatnonzero(moved)
    return found


def test_what_is_frozen_stands_still_and_what_is_not_moves(joint):
    task, state = joint
    nothing = steps(task, state, 2)
    # Nothing is frozen: b moves everywhere, no operation's scale or shift does.
    assert np.all(np.any(nothing.arch.b != state.arch.b, -1))
    assert not changed_norms(state, nothing)

    frozen = np.array([[True, False], [False, True]])
    some = state.replace(arch=state.arch.replace(frozen=frozen))
    after = steps(task, some, 2)
    np.testing.assert_array_equal(after.arch.b[frozen], state.arch.b[frozen])
    assert np.all(np.any(after.arch.b[~frozen] != state.arch.b[~frozen], -1))
    w_before, w_after = (np.asarray(coefficients(s.arch)) for s in (some, after))
    np.testing.assert_array_equal(w_after[frozen], w_before[frozen])
    assert np.all(np.any(w_after[~frozen] != w_before[~frozen], -1))
    # Scale and shift move for the active operations of frozen nodes and for nobody else.
    moved = changed_norms(some, after)
    assert moved
    for path, edges in moved.items():
        cell_type = int("inputs" in path[1] or "nodes" in path[1])
        plan = task.net.plans()[int(path[0][-2:])]
        spec = task.net.spec(plan)
        groups = [spec.groups[0]] if not plan.reduction else spec.groups
        names = ("edges",) if not plan.reduction else ("edges_from_inputs", "edges_from_nodes")
        group = groups[names.index(path[1])]
        for edge in edges:
            assert frozen[cell_type, group[edge][0]], path


def timeless(workdir):
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) | {"seconds": 0, "images_per_second": 0} for line in lines]


def stop_at(monkeypatch, task_class, step):
    """SIGTERM before this step, once."""
    before = task_class.before

    def hit(self, state, at):
        if at == step:
            monkeypatch.setattr(task_class, "before", before)
            signal.raise_signal(signal.SIGTERM)
        return before(self, state, at)

    monkeypatch.setattr(task_class, "before", hit)


def test_resumed_in_both_phases_and_at_the_switch(tmp_path, monkeypatch, capsys):
    config = tiny()
    straight = one_stage.run(config, tmp_path / "straight")
    said = capsys.readouterr().out
    assert "training goes on with the static net" in said
    assert straight["search"]["frozen"] == 4
    assert straight["search"]["frozen_by_limit"] == 0
    assert straight["search"]["epochs"] < 4
    assert straight["absorption_difference"] < 1e-4

    run = tmp_path / "run"
    stop_at(monkeypatch, OneStageSearch, 1)
    with pytest.raises(Interrupted, match="search 0 saved at step 2"):
        one_stage.run(config, run)
    with monkeypatch.context() as patch:  # as if killed between the two phases
        patch.setattr(one_stage, "switch", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            one_stage.run(config, run)
    stop_at(monkeypatch, TrainTask, 3)
    with pytest.raises(Interrupted, match="train 0 saved at step 4"):
        one_stage.run(config, run)
    resumed = one_stage.run(config, run)

    assert timeless(run) == timeless(tmp_path / "straight")
    replay, expected = (metrics.read(f / REPLAY) for f in (run, tmp_path / "straight"))
    assert replay == expected
    assert np.all(replay[-1]["frozen"])
    assert resumed["test_accuracies"] == straight["test_accuracies"]
    ours, theirs = load_trained(run), load_trained(tmp_path / "straight")
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_switch_loses_nothing(joint, tmp_path):
    """The static net goes on from the super-net's loss, momentum and statistics."""
    task, state = joint
    state = steps(task, state, 3)
    config = task.config
    with open_session(config, tmp_path / "run") as session:
        weights = coefficients(state.arch)
        genotype = one_stage.Genotype.from_supports(*np.asarray(state.arch.support))
        dataset, devices = session.dataset, session.devices
        net = target_net(config, config.train, dataset, genotype)
        train = TrainTask(config, dataset, devices, net, name="train", coefficients=weights)
        start = one_stage.switch(state, task, train)
        split = session.dataset.train.take(slice(0, 64))
        after = train.evaluate(session.devices.replicate(start), split)
        before = task.evaluate(session.devices.replicate(state), split)
        # Sums in another order.
        assert after["loss"] == pytest.approx(before["loss"], rel=1e-5)
        trace = flatten_dict(optax.tree_utils.tree_get(start.sgd, "trace"))
        own = flatten_dict(optax.tree_utils.tree_get(state.weights.sgd, "trace"))
        stem = ("stem", "conv0")
        np.testing.assert_array_equal(trace[stem], own[stem])
        assert np.abs(trace[stem]).max() > 0


def test_switch_takes_the_weights_of_the_genotype(joint, tmp_path):
    """The last recovery may choose operations that were not in the state's support."""
    task, state = joint
    genotype = random_genotype(1, replace(DARTS, nodes=2))
    assert genotype != one_stage.Genotype.from_supports(*np.asarray(state.arch.support))
    with open_session(task.config, tmp_path / "run") as session:
        config, dataset = task.config, session.dataset
        net = target_net(config, config.train, dataset, genotype)
        train = TrainTask(config, dataset, session.devices, net, name="train")
        start = one_stage.switch(state, task, train)
    own = init_target(net, jax.random.key(0), dataset.image_size)["params"]
    assert jax.tree.map(np.shape, start.params) == jax.tree.map(np.shape, own)


def test_nodes_that_never_rest_are_frozen_by_the_limit(tmp_path, monkeypatch, capsys):
    """And a budget that no network keeps is refused before anything is compiled."""
    config = tiny("search.ista.budget.max_parameters=10")
    with pytest.raises(ValueError, match=r"max_parameters is 10, but the smallest network has"):
        one_stage.run(config, tmp_path / "impossible")
    assert not (tmp_path / "impossible" / "config.json").exists()

    def fitted(task, state, session):
        return loop.Fitted(session.devices.replicate(state), {"total": 1.0})

    monkeypatch.setattr(search, "fit", fitted)
    monkeypatch.setattr(OneStageSearch, "result", lambda *_: _found())
    with open_session(tiny(), tmp_path / "run") as session:
        task = OneStageSearch(session.config, session.dataset, session.devices)
        _, found = one_stage._search(task, session)
    assert found["frozen_by_limit"] == 4
    assert "after 4 epochs 4 nodes are still moving" in capsys.readouterr().out


def _found():
    genotype = random_genotype(0, replace(DARTS, nodes=2)).to_dict()
    return {"genotype": genotype, "coefficients": np.ones((2, 2, 2)).tolist(), "epochs": 4}


def test_a_failed_comparison_costs_nobody_the_training(tmp_path, monkeypatch, capsys):
    """The network is saved; the result and the screen say what is wrong."""
    monkeypatch.setitem(agreement.TOLERANCE, "float32", -1.0)
    result = one_stage.run(tiny(), tmp_path / "run")
    assert "absorption changes the logits by" in result["absorption_warning"]
    assert "warning: absorption changes the logits by" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    trained = load_trained(tmp_path / "run")
    assert trained.net.genotype == one_stage.Genotype.from_dict(result["genotype"])
