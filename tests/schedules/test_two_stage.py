"""The two-stage schedule in this process: recovery, devices, damage, users' own images."""

import itertools
import json
import signal
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from places import ROOT
from tiny_runs import fake_run, rows, timeless, tiny, two_nodes

from istanas_jax.config.files import load_config
from istanas_jax.methods.budget import Budget
from istanas_jax.methods.ista import recovery_interval
from istanas_jax.runs.interrupts import Interrupted
from istanas_jax.runs.session import open_session
from istanas_jax.schedules import two_stage
from istanas_jax.schedules.search import OneStageSearch, TwoStageSearch
from istanas_jax.space.genotype import Genotype
from istanas_jax.sparse_coding.architecture import recover, supports_of
from istanas_jax.training.errors import TrainingError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def searching(tmp_path_factory):
    """A search task compiled once, and a way to run it in another folder."""
    config = tiny("checkpoint.every_steps=4")
    with open_session(config, tmp_path_factory.mktemp("search") / "run") as session:
        task = TwoStageSearch(config, session.dataset, session.devices, two_nodes(session))
        task.begin(0)
        task.compile(session.devices.replicate(task.start()))

    def run(workdir, every="epoch"):
        with open_session(config, workdir) as session:
            task.method.every = recovery_interval(every, task.steps_per_epoch)
            return task.run(0, session)

    return task, run


@pytest.mark.parametrize("holdout", [0.0, 0.1])
def test_accuracies_of_searches_name_their_images(tmp_path, holdout):
    config = tiny(f"data.holdout_fraction={holdout}")
    one_stage = load_config(str(ROOT / "configs" / "digits.py:one_stage_tiny"))
    with open_session(config, tmp_path) as session:
        two = TwoStageSearch(config, session.dataset, session.devices, two_nodes(session))
        with config.unlocked():
            config.update({key: one_stage[key] for key in ("search", "train")})
        one = OneStageSearch(config, session.dataset, session.devices)
    assert [two.accuracy_of, one.accuracy_of] == (["heldout"] * 2 if holdout else ["b", "training"])
    expected = [one.heldout] * 2 if holdout else [two.for_b, one.images]
    assert [len(two.monitored), len(one.monitored)] == list(map(len, expected))


def test_recovery_per_epoch_and_per_step(searching, tmp_path):
    """Each recovery makes z solve the LASSO of the b it finds: that is when z changes."""
    task, run = searching
    assert task.steps_per_epoch == 3
    recovered, ends = [], []
    before, end_epoch = task.before, task.end_epoch

    def watched(state, step):
        z = np.asarray(state.arch.z)
        state = before(state, step)
        if not np.array_equal(z, state.arch.z):
            recovered.append(step)
        return state

    def ending(state):
        ends.append(jax.device_get(state.arch))
        return end_epoch(state)

    task.before, task.end_epoch = watched, ending
    try:
        for every, expected in (
            ("epoch", [3, 6]),
            ("step", [1, 2, 3, 4, 5, 6, 7, 8]),
            ("4", [4, 8]),
        ):
            recovered.clear()
            run(tmp_path / every, every)
            assert recovered == expected
            if every == "epoch":
                by_epoch = ends[:]
    finally:
        task.before, task.end_epoch = before, end_epoch
    per_epoch, per_step = rows(tmp_path / "epoch"), rows(tmp_path / "step")
    assert [row["epoch"] for row in per_epoch] == [1, 2, 3]
    # Between the first recovery and the second, z is what it was: only `step` moved on.
    assert per_epoch[0]["loss"] != per_step[0]["loss"]
    # How far z goes in an epoch is in the epoch's own row, the last one's too.
    for arch, row in zip(by_epoch, per_epoch, strict=True):
        moved = recover(arch, task.method.coding).distance
        assert np.all(moved > 0)
        np.testing.assert_allclose(row["distance"], moved, rtol=1e-5)  # rounding of other programs
    assert all(np.shape(row["distance"]) == (2, 2) for row in per_step)


@pytest.mark.parametrize("every", ["epoch", "step", "4"])
def test_replay_tells_how_the_search_went(searching, tmp_path, every):
    """A row for the start, for each epoch, and for each recovery that changed something.

    One more recovery follows the last step: the last row is what is found.
    """
    task, run = searching
    result = run(tmp_path, every)
    told = rows(tmp_path, "replay.jsonl")
    steps = [row["step"] for row in told]
    assert steps == sorted(set(steps))
    assert (
        {0, 3, 6, 9}
        <= set(steps)
        <= {"epoch": {0, 3, 6, 9}, "4": {0, 3, 4, 6, 8, 9}}.get(every, set(range(10)))
    )
    assert not np.any(told[0]["changed"])
    for before, row in itertools.pairwise(told):
        moved = np.sort(before["support"]) != np.sort(row["support"])
        assert np.array_equal(moved.any(-1), row["changed"])
        if row["step"] % 3:
            assert moved.any()
        largest = np.argsort(-np.abs(row["z"]), -1)[..., :2]
        assert np.array_equal(largest, row["support"])
    last = Genotype.from_supports(*supports_of(SimpleNamespace(**told[-1])), task.method.space)
    assert last.to_dict() == result["genotype"]
    assert result["accuracy_of"] == "heldout"
    assert told[-1]["frozen"] == [[False] * 2] * 2
    # The distance an epoch went is told with the epoch; from one recovery to the next if there
    # is one per epoch.
    if every == "epoch":
        for row, epoch in zip(told[1:], rows(tmp_path), strict=True):
            np.testing.assert_allclose(row["distance"], epoch["distance"], rtol=1e-6)


def test_changes_are_counted_after_the_budget_decided(searching, tmp_path):
    """A budget of pools only: what z would have, and does not get, is no change."""
    task, run = searching
    sizes = {"space": task.method.space}
    size = task.dataset.image_size
    pools = np.array([[[0, task.method.space.num_ops]] * 2] * 2)  # of both inputs
    least = Budget(task.target, size, limits=(10**9, 0), **sizes).total(pools)[0]
    task.method.budget = Budget(task.target, size, limits=(int(least), 0), **sizes)
    try:
        run(tmp_path)
    finally:
        task.method.budget = None
    told, epochs = rows(tmp_path, "replay.jsonl"), rows(tmp_path)
    assert [row["step"] for row in told] == [0, 3, 6, 9]  # the last follows the last epoch
    assert [row["budget_decided"] for row in told[1:]] == [True] * 3
    assert [row["changed"] for row in epochs[1:]] == [
        int(np.sum(row["changed"])) for row in told[1:-1]
    ]
    assert epochs[1]["budget_decided"] == 1


@pytest.mark.parametrize("every", ["", "epochs", "0", "-3", "1.5"])
def test_recovery_interval_that_is_none(every):
    with pytest.raises(ValueError, match='not "epoch", "step" or a number'):
        recovery_interval(every, 10)


def test_damaged_newest_checkpoint_is_passed_over(searching, tmp_path, capsys):
    _, run = searching
    straight = run(tmp_path / "run")
    before, replay = timeless(tmp_path / "run"), rows(tmp_path / "run", "replay.jsonl")
    folder = tmp_path / "run" / "checkpoints" / "search_0"
    newest = max(int(path.name) for path in folder.iterdir())
    assert newest == 9
    for damaged in (folder / "9" / "state").rglob("d/*"):  # some are not read
        content = bytearray(damaged.read_bytes())
        content[len(content) // 2] ^= 1
        damaged.write_bytes(content)

    again = run(tmp_path / "run")
    said = capsys.readouterr().out
    assert f"checkpoint {folder / '9'} is damaged" in said
    assert "using step 8 instead" in said
    assert timeless(tmp_path / "run") == before
    assert rows(tmp_path / "run", "replay.jsonl") == replay
    assert again | {"seconds": 0} == straight | {"seconds": 0}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signal_saves_and_the_same_command_goes_on(searching, tmp_path, name):
    task, run = searching
    straight = run(tmp_path / "straight")
    before = task.before

    def hit(state, step):
        if step == 4:
            signal.raise_signal(signal.Signals[name])
        return before(state, step)

    task.before = hit
    try:
        with pytest.raises(Interrupted) as stopped:
            run(tmp_path / "run")
    finally:
        task.before = before
    assert str(stopped.value) == (
        f"{name}: search 0 saved at step 5 of 9; the same command continues from there"
    )
    assert run(tmp_path / "run") | {"seconds": 0} == straight | {"seconds": 0}
    assert timeless(tmp_path / "run") == timeless(tmp_path / "straight")
    told, expected = (rows(tmp_path / name, "replay.jsonl") for name in ("run", "straight"))
    assert told == expected


def test_uncertified_recoveries_stop_the_run(searching, tmp_path, capsys):
    task, run = searching
    recover, failed = task.method._recover, []

    def fails(state, disturbance):
        state, report = recover(state, disturbance)
        failed.append(report)
        return state, report | {"uncertified": len(failed) - 1}  # the first one is good

    task.method._recover = fails
    try:
        with pytest.raises(TrainingError, match="search 0: the LASSO before step 4 has no cert"):
            run(tmp_path / "run", "step")
    finally:
        task.method._recover = recover
    assert "the LASSO before step 1 has no certified solution" in capsys.readouterr().err


def test_infinite_loss_stops_with_step_rate_and_checkpoint(searching, tmp_path):
    task, run = searching
    step = task.step

    def explodes(state, *batch):
        at = int(state.step)
        state, totals = step(state, *batch)
        return state, totals.replace(loss=totals.loss * (jnp.inf if at == 6 else 1))

    task.step = explodes
    try:
        with pytest.raises(TrainingError) as error:
            run(tmp_path / "run")
    finally:
        task.step = step
    rate = task.learning_rate(6)
    assert str(error.value) == (
        f"search 0: the loss of step 6 is inf, at learning rate {rate:.3g}; the last good "
        f"checkpoint is {tmp_path / 'run' / 'checkpoints' / 'search_0' / '4'}"
    )


def test_best_of_several_searches(tmp_path, monkeypatch, capsys):
    """The chosen genotype is the one of the search with the best accuracy."""
    config = tiny("search.runs=3")
    run = partial(fake_run, accuracies=[0.5, 0.9, 0.7])
    monkeypatch.setattr(TwoStageSearch, "run", run)
    with open_session(config, tmp_path) as session:
        searches, best = two_stage._search(session)
    assert "90.00 % of images of b right (the best of 3)" in capsys.readouterr().out
    assert [s["seed"] for s in searches] == [0, 1, 2]
    assert best["seed"] == 1
    written = json.loads((tmp_path / "genotype.json").read_text())
    assert written.pop("space")["nodes"] == 2  # named, since DARTS has 4
    assert written == best["genotype"]
    assert best["genotype"] == searches[1]["genotype"] != searches[0]["genotype"]
