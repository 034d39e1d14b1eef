"""`study cost`: what does not fit is told, and a measurement is a process of its own."""

import json

import pytest
from places import ROOT
from tiny_space import TINY_SPACE

from istanas_jax.bench import methods
from istanas_jax.bench.costs import apart
from istanas_jax.config.files import load_config
from istanas_jax.studies.cost import CostStudy

CONFIG = str(ROOT / "configs" / "study.py")


def study_config(variant, *overrides):
    return load_config(f"{CONFIG}:{variant}", [f"--config.{o}" for o in overrides])


def test_cost_with_what_does_not_fit(monkeypatch, tmp_path):
    asked = []

    def process(given):
        asked.append(json.loads(given)["config"]["search"])
        method, batch = asked[-1]["method"], asked[-1]["batch"]
        about = {"devices": "1 x cpu", "commit": "abc", "stages": 1, "trace_s": 2, "compile_s": 30}
        about |= {"needed_mb": 30 * batch, "free_mb": 20_000, "method": method, "batch": batch}
        if batch == 1024:
            return -9, "", ""
        if batch == 512:
            return 0, json.dumps(about | {"out_of_memory": "the step needs 15 GiB"}), ""
        if method == "darts":
            return 1, "", "Traceback\nValueError: no"
        timed = {"step_s_median": 0.5, "steps_per_epoch": 100, "epochs": 50, "measured_mb": 900}
        return 0, f"warning\n{json.dumps(about | timed)}\n", ""

    monkeypatch.setattr(apart, "_process", process)
    config = study_config("cost", "study.methods=('ista','darts')", "study.batches=(64,512,1024)")
    results = CostStudy(config, tmp_path).run()
    assert [row["batch"] for row in results["rows"]] == [64, 512, 1024, 512, 1024]
    shown = (tmp_path / "study.md").read_text()
    assert (
        "| two-stage ISTA-NAS | 64 | 0.500 | 128 | 2 + 30 | 1.88 | 0.88 | 0:41:40 | 1.9 |" in shown
    )
    assert shown.count("out of memory") == 4
    assert "**Failed**: darts_64: the step could not be measured: ValueError: no." in shown
    assert "ista" in asked[0]
    assert "darts" not in asked[0]
    asked.clear()
    CostStudy(config, tmp_path).run()
    assert len(asked) == 1  # the one that failed


def test_step_that_needs_more_than_there_is(monkeypatch):
    def run(config, steps):
        raise methods.OutOfMemory("the step needs 9.0 GiB", {"compile_s": 3})

    monkeypatch.setattr(methods, "run", run)
    results = apart.measure(None, 2)
    assert results == {"compile_s": 3, "out_of_memory": "the step needs 9.0 GiB"}


@pytest.mark.slow
def test_a_measurement_in_a_process_of_its_own(environment, monkeypatch, tmp_path):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    small = (*TINY_SPACE, "search.cells=1", "study.methods=('random',)")
    config = study_config("cost_tiny", *small, "study.batches=(8,)")
    (row,) = CostStudy(config, tmp_path).run()["rows"]
    assert row["step_s_median"] > 0
    assert row["compile_s"] > 0
    assert row["needed_mb"] <= row["free_mb"]
    assert row["projected_s"] == row["step_s_median"] * row["steps_per_epoch"] * row["epochs"]
