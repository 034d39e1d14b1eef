"""Whole tiny runs on the CPU of what a TPU would execute: its forms, types and rounding."""

import json

import numpy as np
import pytest
import tiny_runs
from places import ROOT
from tiny_space import TINY_SPACE

from istanas_jax.config.files import load_config
from istanas_jax.data.dataset import load_dataset
from istanas_jax.devices.parallel import Devices
from istanas_jax.devices.platforms import ACT_AS
from istanas_jax.runs.trained_network import load_trained
from istanas_jax.schedules import one_stage, two_stage
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.search import TwoStageSearch
from istanas_jax.schedules.training import TrainTask

ONE_STAGE = [
    *TINY_SPACE,
    "search.cells=1",
    "train.cells=1",
    "search.epochs=2",
    "train.epochs=1",
    "data.max_images=70",
]
BFLOAT16 = ["search.dtype=bfloat16", "train.dtype=bfloat16"]


def config_of(schedule, overrides):
    if schedule is two_stage:
        return tiny_runs.tiny("search.epochs=2", *overrides)
    spec = str(ROOT / "configs" / "digits.py:one_stage_tiny")
    return load_config(spec, [f"--config.{override}" for override in [*ONE_STAGE, *overrides]])


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [[], BFLOAT16], ids=["rounded", "bfloat16"])
@pytest.mark.parametrize("schedule", [two_stage, one_stage], ids=["two_stage", "one_stage"])
def test_a_run_as_on_a_tpu_ends_with_a_result(schedule, overrides, tmp_path, monkeypatch):
    monkeypatch.setenv(ACT_AS, "tpu")
    run = tmp_path / "run"
    result = schedule.run(config_of(schedule, overrides), run)
    assert json.loads((run / "started.json").read_text())["acts_as"] == "tpu"
    assert np.isfinite([row["loss"] for row in tiny_runs.rows(run) if "loss" in row]).all()
    assert 0 <= result["test_accuracy"] <= 1
    assert load_trained(run).net.dtype == ("bfloat16" if overrides else "float32")
    if schedule is one_stage:
        assert result["absorption_warning"] is None


@pytest.mark.slow
def test_the_configured_precision_reaches_both_steps():
    """Every product of the step; those of the coefficients are always of the highest."""

    def highest(precision):
        keys = [f"{phase}.matmul_precision={precision}" for phase in ("search", "train")]
        config = tiny_runs.tiny(*keys)
        dataset, devices = load_dataset(config.data), Devices()
        net = target_net(config, config.train, dataset)
        tasks = [TwoStageSearch(config, dataset, devices, net)]
        tasks.append(TrainTask(config, dataset, devices, net))
        return [task.lower(task.shapes()).as_text().count("HIGHEST") for task in tasks]

    (search, train), (more, all_of_them) = highest("default"), highest("highest")
    assert train == 0 < all_of_them
    assert search < more


def test_what_to_act_as_is_checked(monkeypatch):
    monkeypatch.setenv(ACT_AS, "tpuu")
    with pytest.raises(ValueError, match="ISTANAS_ACT_AS is tpuu, it must be one of tpu, cuda"):
        Devices()
    monkeypatch.delenv(ACT_AS)
    assert Devices().acts_as == "cpu"
    assert Devices(acts_as="cuda").acts_as == "cuda"
