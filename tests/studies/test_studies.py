"""Studies: folders that go on and grow, and what their tables say.

Most runs here are made up: what a driver would leave is written at once. One study is real.
"""

import json

import pytest
from made_up_studies import leave, result_of, text
from study_configs import CONFIG, study_config
from tiny_space import TINY_SPACE

from istanas_jax.cli.main import main
from istanas_jax.methods import METHODS
from istanas_jax.runs.folder import WorkdirError
from istanas_jax.runs.interrupts import Interrupted
from istanas_jax.studies.accuracy import AccuracyStudy
from istanas_jax.studies.correlation import CorrelationStudy
from istanas_jax.studies.curves import CurvesStudy
from istanas_jax.training.errors import TrainingError


@pytest.mark.slow
def test_correlation_goes_on_and_grows(drivers, tmp_path):
    done, trouble = drivers
    folder = tmp_path / "study"

    def run(*overrides):
        done.clear()
        config = study_config("correlation_tiny", *overrides)
        return CorrelationStudy(config, folder).run()

    trouble["random_retrain_1"] = Interrupted("stopped", 15)
    with pytest.raises(Interrupted):
        run("study.seeds=3")
    assert done[-1] == "random_retrain_1"
    assert "**Not finished**: 5 of 14 parts are done" in text(folder)
    run("study.seeds=3")
    assert done[0] == "random_retrain_1"
    assert len(done) == 14 - 5
    results = run("study.seeds=5")  # more seeds: both searches go on, and two more of the rest
    assert done[:2] == ["ista_search", "random_search"]
    assert len(done) == 2 + 2 * 2 + 2 * 2
    by_name = {row["method"]: row for row in results["rows"]}
    # Against ISTA-NAS, and told like anything else.
    assert by_name["ista"]["tau"] == -1
    assert by_name["ista"]["paper_tau"] == 0.43
    assert by_name["one_stage"]["tau"] == -1
    shown = text(folder)
    assert (
        "| two-stage ISTA-NAS | 5 | 52.00 ± 1.58 | 68.00 ± 1.58 | -1.00 | -1.00 to -1.00" in shown
    )
    assert "Not finished" not in shown
    assert "abc" in shown
    assert json.loads((folder / "study.json").read_text())["rows"][0]["tau"] == -1
    assert (folder / "study.svg").read_bytes().startswith(b"<?xml")
    run("study.seeds=5")
    assert not done


def test_same_images_and_budget_for_all(tmp_path):
    study = CorrelationStudy(study_config("correlation_small"), tmp_path / "study")
    configs = [study.two_stage_config(method, 3) for method in study.methods]
    configs.append(study.one_stage_config(3))
    configs.append(study.retrain_config("random:0", 3))
    for config in configs:
        assert config.seed == 3
        assert config.data.to_dict() == configs[0].data.to_dict()
        assert config.data.division_seed == 0
    for config in configs[1 : len(study.methods)]:
        same = {key: config.search[key] for key in ("cells", "channels", "epochs", "batch")}
        assert same == {key: configs[0].search[key] for key in same}
        assert config.search.weights == configs[0].search.weights
        assert config.train == configs[0].train
    assert "darts" not in configs[0].search
    again = study.retrain_config("random:0", 3, of_one_stage=True)
    assert again.train.one_stage_norms
    assert again.train.epochs == study.config.one_stage.train.epochs


def test_a_run_that_fails_is_told_and_the_others_are_done(drivers, tmp_path):
    _, trouble = drivers
    trouble["ista_search"] = TrainingError("the loss is nan")
    config = study_config("correlation_tiny", "study.one_stage=False")
    results = CorrelationStudy(config, tmp_path).run()
    assert results["failed"] == {"ista_search": "the loss is nan"}
    assert "**Failed**: ista_search: the loss is nan." in text(tmp_path)
    assert results["rows"][1]["n"] == 2
    CorrelationStudy(config, tmp_path).run()
    assert "Failed" not in text(tmp_path)


def test_a_study_that_never_began_leaves_its_folder_free(drivers, tmp_path):
    _, trouble = drivers
    trouble["ista_search"] = ValueError("no such data")
    with pytest.raises(ValueError, match="no such data"):
        CorrelationStudy(study_config("correlation_tiny"), tmp_path / "s").run()
    CorrelationStudy(study_config("correlation_tiny", "search.epochs=4"), tmp_path / "s").run()
    with pytest.raises(WorkdirError, match=r"search\.epochs was 4, is 2"):
        CorrelationStudy(study_config("correlation_tiny"), tmp_path / "s")


def test_correlation_of_several_trainings_comes_to_its_end(drivers, tmp_path):
    """One-stage cells are trained as often as those of other methods."""
    done, _ = drivers
    config = study_config("correlation_tiny", "train.runs=2", "study.methods=('ista',)")
    results = CorrelationStudy(config, tmp_path).run()
    assert results["missing"] == []
    assert [row["n"] for row in results["rows"]] == [2, 2]
    done.clear()
    CorrelationStudy(config, tmp_path).run()
    assert not done


@pytest.mark.parametrize("study", [CorrelationStudy, AccuracyStudy, CurvesStudy])
def test_a_method_of_ones_own(drivers, tmp_path, monkeypatch, study):
    """Has its own title in tables and figures."""
    own = METHODS["darts"]._replace(title="a method of my own")
    monkeypatch.setitem(METHODS, "own_method", own)
    name = study.__name__.removesuffix("Study").lower()
    config = study_config(f"{name}_tiny")
    with config.unlocked():
        config.study.update({"methods": ("own_method",), "one_stage": False})
        config.search.own_method = config.search.darts
    assert study(config, tmp_path).run()["missing"] == []
    assert "| a method of my own |" in text(tmp_path)
    assert b"a method of my own" in (tmp_path / "study.svg").read_bytes()


def test_accuracy(drivers, tmp_path):
    done, _ = drivers
    overrides = ("study.cells=('random:0',)", "train.runs=2", "study.methods=('random','ista')")
    results = AccuracyStudy(study_config("accuracy_tiny", *overrides), tmp_path).run()
    assert done[:4] == ["random_0", "ista_0", "one_stage_0", "random_0_0"]
    rows = {row["method"]: row for row in results["rows"]}
    assert rows["ista"]["trainings"] == 4
    for row in results["rows"]:  # nothing is counted twice
        seeds = [seed for run in row["runs"] for seed in run["seeds"]]
        assert len(seeds) == len(set(seeds)) == (2 if row["method"] == "one_stage" else 4)
    assert rows["ista"]["test_accuracy"][0] == pytest.approx(0.805)
    assert rows["ista"]["train_s"] == 60  # two trainings in 120 s
    shown = text(tmp_path)
    assert "| two-stage ISTA-NAS | 4 | 19.50 ± 0.58 | 10.00 | 0.001 M |" in shown
    assert "2.54 ± 0.05" in shown
    done.clear()
    AccuracyStudy(study_config("accuracy_tiny", *overrides, "search.runs=2"), tmp_path).run()
    assert done == ["random_0", "ista_0", "random_1", "ista_1"]


def test_no_search_is_counted_twice(tmp_path):
    """Nor when more seeds or more searches are asked for later."""
    searches = set()
    for seeds, times in ((2, 5), (4, 7)):
        config = study_config("accuracy_tiny", f"study.seeds={seeds}", f"search.runs={times}")
        study = AccuracyStudy(config, tmp_path / "study")
        first = [study.two_stage_config("ista", number).seed for number in range(seeds)]
        asked = {seed + run for seed in first for run in range(times)}
        assert len(asked) == seeds * times
        assert searches <= asked
        searches = asked
    with pytest.raises(ValueError, match=r"search\.runs is 101, .* have 100 seeds each"):
        AccuracyStudy(study_config("accuracy_tiny", "search.runs=101"), tmp_path / "more")


def test_runs_of_other_seeds_are_not_taken(tmp_path):
    """As in a folder in which two runs shared some of their searches."""
    config = study_config("accuracy_tiny", "study.methods=('ista',)", "study.one_stage=False")
    study = AccuracyStudy(config, tmp_path)
    own = study.two_stage_config("ista", 1)
    own.seed = 1
    leave(tmp_path / "ista_1", own, result=result_of(own, 0.9, seeds=1, searches=1))
    assert not study.two_stage("ista", 1).done()


def test_curves(drivers, tmp_path):
    config = study_config("curves_tiny", "study.one_stage=False")
    results = CurvesStudy(config, tmp_path).run()
    first = results["rows"][0]
    assert first["minutes"] == [1.0, 2.5]
    assert first["accuracy"] == [0.1, 0.2]
    assert "| two-stage ISTA-NAS | 1 | held-out images | 20.00 | 20.00 | 2 | 0:02:30 | 0.25 |" in (
        text(tmp_path)
    )
    assert b"node 1" in (tmp_path / "study.svg").read_bytes()


@pytest.mark.slow
def test_a_real_study(tmp_path):
    """From images to the table, by the command; every trained network reads the test split once."""
    small = [*TINY_SPACE, "search.cells=1", "train.cells=1", "data.max_images=140"]
    small += ["study.seeds=1", "study.one_stage=False", "study.methods=('random',)"]
    small += ["data.mean=(0.3,)", "data.std=(0.4,)"]
    given = ["--config", f"{CONFIG}:correlation_tiny", "--workdir", str(tmp_path / "s")]
    assert main(["study", "correlation", *given, *(f"--config.{o}" for o in small)]) == 0
    (row,) = json.loads((tmp_path / "s" / "study.json").read_text())["rows"]
    folders = {path.name for path in (tmp_path / "s").iterdir() if path.is_dir()}
    assert folders == {"random_search", "random_retrain_0"}
    searched = json.loads((tmp_path / "s" / "random_search" / "search_0.json").read_text())
    trained = json.loads((tmp_path / "s" / "random_retrain_0" / "result.json").read_text())
    assert trained["genotype"] == searched["genotype"]
    assert row["pairs"][0]["search"] == searched["accuracy"]
    assert searched["accuracy_of"] == "heldout"
    assert row["pairs"][0]["retrained"] == trained["test_accuracy"]
    assert main(["report", str(tmp_path / "s")]) == 0
    assert "random_retrain_0" in (tmp_path / "s" / "index.html").read_text()
