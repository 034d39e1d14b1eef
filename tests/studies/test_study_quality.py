"""`study quality`: epochs that fit into the minutes, the table, and one small study for real."""

import json

import pytest
from places import ROOT
from tiny_space import TINY_SPACE

from istanas_jax.cli.main import main
from istanas_jax.config.files import load_config
from istanas_jax.judge import regression
from istanas_jax.space.genotype import Genotype, load
from istanas_jax.studies import quality
from istanas_jax.studies.minutes import RESERVE, epochs_that_fit, with_epochs
from istanas_jax.studies.quality import QualityStudy
from istanas_jax.studies.stats import mean_difference, mean_interval
from istanas_jax.training.errors import TrainingError

CONFIG = str(ROOT / "configs" / "study.py")
TIMES = {"step_s": 0.1, "steps_per_epoch": 100, "evaluation_s": 3.0, "compile_s": 9.0}
TIMES |= {"evaluates_every_epoch": False, "stages": 1}
FOUND = ["PC_DARTS_cifar", "DARTS_V2", "random:7"]


def study_config(*overrides, variant="quality_small"):
    return load_config(f"{CONFIG}:{variant}", [f"--config.{o}" for o in overrides])


@pytest.fixture
def work(monkeypatch):
    """Instead of searches, trainings and timings: what they leave, and a list of what was done."""
    done, trouble = [], {}

    def leave(config, folder, name, value):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(config.to_json_best_effort())
        (folder / "started.json").write_text(json.dumps({"commit": "abc"}))
        (folder / name).write_text(json.dumps(value))

    def time(config, steps):
        done.append(f"timing {config.search.method}")
        return dict(TIMES)

    def search(config, folder):
        number = config.search.runs - 1
        done.append(f"{folder.name} {number}")
        if folder.name in trouble:
            raise trouble[folder.name]
        cells = load(FOUND[number] if config.search.method == "ista" else f"random:{number}")
        results = {"genotype": cells.to_dict(), "accuracy": 0.5, "accuracy_of": "b"}
        results |= {"coefficients": [[[0.1, 0.2]] * 4] * 2}
        results |= {"seconds": {"total": 700.0, "compile": 40.0}, "epochs": config.search.epochs}
        leave(config, folder, f"search_{number}.json", results)

    def train(config, folder):
        done.append(folder.name)
        mean = 0.7 if folder.name.startswith("ista") else 0.6
        mean += int(folder.name.rpartition("_")[2]) / 100
        result = {"test_accuracies": [mean - 0.01, mean + 0.01], "test_accuracy": mean}
        result |= {"test_accuracy_deviation": 0.0, "test_top5_accuracy": 0.9, "seeds": [0, 1]}
        genotype = Genotype.from_dict(json.loads(config.genotype)).to_dict()
        leave(config, folder, "result.json", result | {"genotype": genotype, "parameters": 1})

    monkeypatch.setattr(quality.search_time, "run", time)
    monkeypatch.setattr(quality.two_stage, "search", search)
    monkeypatch.setattr(quality.retrain, "run", train)
    return done, trouble


SMALL = ("study.seeds=3", "study.methods=('ista','random')", "study.trained.random=2")


def test_the_whole_table(work, tmp_path):
    done, _ = work
    results = QualityStudy(study_config(*SMALL), tmp_path).run()
    assert done[:4] == ["timing ista", "timing random", "ista_search 0", "random_search 0"]
    assert done[8:] == [f"ista_retrain_{n}" for n in range(3)] + ["random_cell_0", "random_cell_1"]
    ista, random = results["rows"]
    expected = [regression.judge(load(name)).percentile for name in FOUND]
    assert [run["percentile"] for run in ista["runs"]] == expected
    assert ista["percentile"] == pytest.approx(sum(expected) / 3)
    assert ista["lowest"] == min(expected) and ista["interval"][0] < ista["percentile"]
    assert tuple(ista["runs"][0]["weight_free"]) == (2, 1)
    assert (ista["runs"][0]["seconds"], ista["runs"][0]["compile_s"]) == (660, 40)
    assert random["trained"] == []  # only the methods that study.trained names
    beside = results[quality.RANDOM_CELLS]
    assert [cell["mean"] for cell in beside["trained"]] == pytest.approx([0.6, 0.61])
    # Means 0.70, 0.71, 0.72 against 0.60, 0.61: variances 1e-4 / 3 and 0.5e-4 / 2.
    assert ista["above_random"]["difference"] == pytest.approx(0.105)
    error = (1e-4 / 3 + 0.5e-4 / 2) ** 0.5
    assert ista["above_random"]["standard_error"] == pytest.approx(error)
    text = (tmp_path / "study.md").read_text()
    assert f"| two-stage ISTA-NAS | 3 | 28 | {ista['percentile']:.1f} |" in text
    assert "| random cells | - | - | 50.0 |" in text
    assert (
        f"| two-stage ISTA-NAS | 3 | 71.00 ± 1.00 | +10.50, standard error {100 * error:.2f} |"
        in (text)
    )
    assert (tmp_path / "study.svg").read_bytes().startswith(b"<?xml")


def test_goes_on_with_the_epochs_it_chose(work, tmp_path, monkeypatch):
    done, trouble = work
    trouble["random_search"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        QualityStudy(study_config(*SMALL), tmp_path).run()
    trouble.clear()
    before = json.loads((tmp_path / "epochs_random.json").read_text())["epochs"]
    monkeypatch.setitem(TIMES, "step_s", 5.0)  # a busy machine: it is not asked again
    done.clear()
    QualityStudy(study_config(*SMALL), tmp_path).run()
    assert done[0] == "random_search 0"
    config = json.loads((tmp_path / "random_search" / "config.json").read_text())
    assert config["search"]["epochs"] == before == 4 * config["search"]["random"]["genotypes"]
    done.clear()
    QualityStudy(study_config(*SMALL), tmp_path).run()
    assert done == []
    more = ("study.methods=('ista','random','darts')", "study.trained.random=3")
    QualityStudy(study_config("study.seeds=3", *more), tmp_path).run()
    expected = ["timing darts", *(f"darts_search {n}" for n in range(3)), "random_cell_2"]
    assert done == expected


def test_a_search_that_fails_is_told(work, tmp_path):
    _, trouble = work
    trouble["ista_search"] = TrainingError("the loss is nan")
    results = QualityStudy(study_config(*SMALL), tmp_path).run()
    assert len(results["failed"]) == 3
    assert results["rows"][0]["percentile"] is None
    assert len(results["rows"][1]["runs"]) == 3


def test_cells_that_the_judge_does_not_know(work, tmp_path, monkeypatch):
    monkeypatch.setattr(quality.regression, "why_not", lambda _: "only cells of 4 nodes")
    results = QualityStudy(study_config(*SMALL), tmp_path).run()
    assert results["rows"][0]["percentile"] is None
    assert results["rows"][0]["interval"] == (None, None)
    assert "only cells of 4 nodes" in (tmp_path / "study.md").read_text()


@pytest.mark.parametrize(
    ("method", "minutes", "epochs"),
    [
        ("darts", 12, 68),  # 684 s, 3 of them for the evaluation, 10 an epoch
        ("darts", 0.01, 1),  # at least one
        ("ista", 12, 28),  # as configured, since it fits
        ("ista", 1, 5),
        ("random", 12, 60),  # 43 s a genotype, of four epochs
    ],
)
def test_epochs_that_fit(method, minutes, epochs, tmp_path):
    assert RESERVE == 0.05
    study = QualityStudy(study_config(), tmp_path / "s")
    config = study.two_stage_config(method)
    assert epochs_that_fit(config, TIMES, minutes) == epochs
    if method == "darts" and minutes == 12:
        monitored = TIMES | {"evaluates_every_epoch": True}
        assert epochs_that_fit(config, monitored, minutes) == 52
    with_epochs(config, epochs)
    assert config.search.epochs == epochs
    if method == "random":
        assert config.search.random.genotypes == 15


def test_warm_ups_keep_their_share(tmp_path):
    study = QualityStudy(study_config(), tmp_path / "s")
    config = study.two_stage_config("pc_darts")
    assert (config.search.epochs, config.search.pc_darts.warmup_epochs) == (28, 9)
    with_epochs(config, 84)
    assert config.search.pc_darts.warmup_epochs == 27
    config = study.two_stage_config("ista")
    assert config.search.ista.explore.warmup_epochs == 4
    with_epochs(config, 56)
    assert config.search.ista.explore.warmup_epochs == 8


def test_statistics():
    assert mean_interval([3.0], resamples=10) == (None, None)
    assert mean_interval([5.0, 5.0, 5.0], resamples=100) == (5, 5)
    low, high = mean_interval([0.0, 100.0] * 50, resamples=2000)
    assert 38 < low < 45 < 55 < high < 62  # 50 ± 1.96 * 50 / 10
    assert mean_difference([1.0], [1.0, 2.0]).difference is None


def test_configs():
    small = study_config()
    assert small.study.minutes == 8 and small.study.seeds == 6
    assert (small.search.cells, small.data.max_images) == (5, 20_000)
    assert study_config(variant="quality").search.epochs == 50
    refused = ["study", "quality", "--config", f"{CONFIG}:quality_tiny", "--workdir", "nowhere"]
    assert main([*refused, "--config.study.methods=('pdarts',)"]) == 2


@pytest.mark.slow
def test_a_real_study(tmp_path):
    """From timing to the table, by the command; the cells are smaller than the judge knows."""
    small = [*TINY_SPACE, "search.cells=1", "train.cells=1", "data.max_images=140"]
    small += ["study.seeds=1", "study.methods=('random',)", "study.trained.methods=('random',)"]
    small += ["data.mean=(0.3,)", "data.std=(0.4,)", "study.trained.random=0"]
    small += ["search.epochs=1", "search.random.genotypes=1", "train.epochs=1"]
    small += ["study.minutes=0.0001"]
    given = ["--config", f"{CONFIG}:quality_tiny", "--workdir", str(tmp_path / "s")]
    assert main(["study", "quality", *given, *(f"--config.{o}" for o in small)]) == 0
    (row,) = json.loads((tmp_path / "s" / "study.json").read_text())["rows"]
    assert row["times"]["epochs"] == 1 and row["times"]["step_s"] > 0
    (run,) = row["runs"]
    assert run["percentile"] is None and "4 nodes" in run["remark"]
    assert len(row["trained"]) == 1 and 0 <= row["trained"][0]["mean"] <= 1
