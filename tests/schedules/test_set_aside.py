"""Trainings belong to the cells they were made of."""

import json
import signal
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from tiny_runs import fake_run, rows, timeless, tiny

from istanas_jax.networks.target_net import init_target
from istanas_jax.runs.folder import Workdir, WorkdirError
from istanas_jax.runs.interrupts import Interrupted
from istanas_jax.runs.session import open_session
from istanas_jax.runs.trained_network import load_trained, make_trained, save_trained
from istanas_jax.schedules import retrain, two_stage
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.search import TwoStageSearch
from istanas_jax.schedules.set_aside import set_aside_others
from istanas_jax.schedules.training import TrainTask
from istanas_jax.space.genotype import Genotype, random_genotype
from istanas_jax.space.spaces import DARTS

# Node 1 takes node 0 instead of c_{k-1}: the weights of the first fit the second.
CELLS = [[[3, 10], [3, 10]], [[3, 10], [3, 17]]]
GENOTYPES = [Genotype.from_supports(cell, cell) for cell in CELLS]


def config(runs):
    return tiny(f"search.runs={runs}", "checkpoint.every_steps=2")


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run of two searches, of which the second does better, never stopped.

    The searches are not done here, only what follows them.
    """
    folder = tmp_path_factory.mktemp("runs") / "straight"
    run = partial(fake_run, accuracies=[0.5, 0.9], genotypes=GENOTYPES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TwoStageSearch, "run", run)
        two_stage.run(config(2), folder)
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["finished", "killed"])
def test_more_searches_do_not_inherit_what_was_trained(
    straight, tmp_path, monkeypatch, capsys, ending
):
    """Better cells are trained anew, though what was trained before them would fit."""
    before = TrainTask.before

    def hit(task, state, step):
        if step == 3:
            signal.raise_signal(signal.SIGTERM)
        return before(task, state, step)

    folder = tmp_path / "grown"
    if ending == "killed":
        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(TrainTask, "before", hit)
            two_stage.run(config(1), folder)
    else:
        first = two_stage.run(config(1), folder)
    capsys.readouterr()
    grown = two_stage.run(config(2), folder)
    earlier = folder / "earlier" / GENOTYPES[0].digest
    assert f"retrain 0 trained other cells than those found now: it is kept in {earlier}" in (
        capsys.readouterr().out
    )
    expected = json.loads((straight / "result.json").read_text())
    assert grown | {"seconds": 0} == expected | {"seconds": 0}
    assert timeless(folder) == timeless(straight)
    results = json.loads((folder / "retrain_0.json").read_text())
    assert results["genotype_hash"] == GENOTYPES[1].digest != GENOTYPES[0].digest
    kept, expected = (load_trained(path) for path in (folder, straight))
    assert kept.net.genotype == GENOTYPES[1]
    for a, b in zip(*map(jax.tree.leaves, (kept.variables, expected.variables)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (earlier / "checkpoints" / "retrain_0").is_dir()
    assert json.loads((folder / "config.json").read_text())["search"]["runs"] == 2
    if ending == "finished":
        assert json.loads((earlier / "result.json").read_text()) == first
        assert load_trained(earlier).net.genotype == GENOTYPES[0]
        assert [row["phase"] for row in rows(earlier, "retrain_0.jsonl")] == ["retrain 0"]
    two_stage.run(config(2), folder)
    assert "other cells" not in capsys.readouterr().out


def test_trainings_that_do_not_say_what_they_are_of(tmp_path):
    """In earlier versions the trained network tells or, if there is none, genotype.json."""
    old, new = (random_genotype(seed, replace(DARTS, nodes=2)) for seed in (0, 1))
    with open_session(tiny(), tmp_path) as session:
        (tmp_path / "checkpoints" / "retrain_1").mkdir(parents=True)
        results = {"seed": 0, "seconds": {"total": 1.0}, "test_accuracy": 0.5}
        session.workdir.write("retrain_0.json", results)
        session.workdir.write("genotype.json", old.to_dict())
        config = session.config
        net = target_net(config, config.train, session.dataset, old).clone(auxiliary=False)
        variables = init_target(net, jax.random.key(0), session.dataset.image_size)
        save_trained(tmp_path, make_trained(net, *variables.values(), session.dataset))
        set_aside_others(session, old)
        assert not (tmp_path / "earlier").exists()
        set_aside_others(session, new)
    earlier = {path.name for path in (tmp_path / "earlier" / old.digest).iterdir()}
    assert {"retrain_0.json", "trained", "checkpoints"} <= earlier
    assert not (tmp_path / "retrain_0.json").exists()
    assert not (tmp_path / "checkpoints" / "retrain_1").exists()


def test_retraining_of_a_file_that_changed_is_refused(tmp_path):
    spec = tmp_path / "cells.json"
    config = retrain.config_for(tiny(), str(spec))
    spec.write_text(random_genotype(1, replace(DARTS, nodes=2)).to_json())
    (tmp_path / "run").mkdir()
    Workdir(tmp_path / "run").write("config.json", json.loads(config.to_json_best_effort()))
    Workdir(tmp_path / "run").write(
        "genotype.json", random_genotype(0, replace(DARTS, nodes=2)).to_dict()
    )
    with pytest.raises(WorkdirError, match=r"holds trainings of other cells than .*cells\.json"):
        retrain.run(config, tmp_path / "run")
