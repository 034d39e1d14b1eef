"""`plan`: what the compiler says about a run, for devices that are not there."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest
from places import ROOT

from istanas_jax.config.files import load_config
from istanas_jax.data.dataset import load_dataset
from istanas_jax.networks.counting import count
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.plan import estimate, table
from istanas_jax.schedules import memory
from istanas_jax.schedules.outline import Outline
from istanas_jax.space.genotype import random_genotype
from istanas_jax.space.spaces import DARTS

TINY = ["--config.space.nodes=2", "--config.search.cells=1", "--config.train.cells=1"]


def check_estimates(measured):
    """What the compiler sets aside is 0.8 to 4 times of what `memory` counts.

    In nets as small as these much goes into what is not counted: normalised images, padding,
    statistics; a fused layer may do without what is counted. For the nets of the README's tables
    it is 1.1 to 1.9 times.
    """
    config = load_config(str(ROOT / "configs" / "digits.py:tiny"), TINY)
    dataset = load_dataset(config.data)
    devices = estimate.Devices(jax.devices()[:1])
    for phase, found in zip(memory.needs(config, dataset, devices), measured, strict=True):
        need = phase.need.of(found["batch_per_chip"])
        assert 0.8 * need <= found["memory"] <= 4 * need, phase.name


@pytest.mark.slow
def test_plan_of_a_run_on_four_devices():
    config = str(ROOT / "configs" / "digits.py:tiny")
    command = [sys.executable, "-m", "istanas_jax", "plan", "--config", config, *TINY]
    command += ["--topology", "cpu:4", "--json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert (results["chips"], results["hosts"], results["fits"]) == (4, 1, True)
    search, retrain = results["phases"]
    assert (search["phase"], retrain["phase"]) == ("search", "train")
    for phase in results["phases"]:
        assert phase["batch_per_chip"] == 4
        assert 0 < phase["memory"] < results["memory_per_chip"]
        assert phase["schedule_seconds"] == pytest.approx(2 * phase["epoch_seconds"])
    check_estimates(results["phases"])
    # Gradients and running statistics, of which there are fewer, are averaged over the chips.
    net = TargetNet(
        genotype=random_genotype(0, replace(DARTS, nodes=2, s=2)),
        classes=10,
        cells=1,
        channels=4,
        stem="cifar",
        regime="retrain",
        auxiliary=False,
        image_channels=1,
    )
    gradients = 4 * count(net, 8).parameters
    assert gradients < retrain["reduced_bytes"] < 2 * gradients
    assert "whole schedule" in table.table(results)
    header, _, *rows = f"{table.HEADER}\n{table.markdown(results, 'digits')}".splitlines()
    assert [row.count("|") for row in rows] == [header.count("|")] * 2


def test_largest_batch_is_found(monkeypatch):
    """With a compiler that finds room for up to 40 images on a chip."""
    monkeypatch.setattr(estimate, "open_topology", lambda _: estimate.Devices())
    tried = []

    def measure(phase, topology, memory):
        per_chip = phase.task.batch // 2
        tried.append(per_chip)
        if per_chip > 100:
            raise estimate.OutOfMemory(20e9)
        return estimate._base(phase) | {"memory": per_chip, "fits": per_chip <= 40}

    monkeypatch.setattr(estimate, "_measure", measure)
    config = load_config(
        "configs/digits.py:tiny", [*TINY, "--config.search.batch=256", "--config.train.batch=64"]
    )
    results = estimate.run(config, "cpu:2", say=lambda _: None)
    search, retrain = results["phases"]
    assert not results["fits"]
    assert (search["fits"], search["largest_batch_per_chip"]) == (False, 40)
    assert retrain["fits"] and "largest_batch_per_chip" not in retrain
    assert max(tried) == 128
    page = table.table(results)
    assert "DOES NOT FIT" in page
    assert "--config.search.microbatches=4" in page  # 128 images: 3 parts would not be equal


def test_outline_divides_as_images_do():
    images = Outline(10, (8, 8, 1))
    assert len(images.take(np.arange(3))) == 3
    assert images.take(np.arange(3)).image_shape == (8, 8, 1)


@pytest.mark.parametrize("name", ["gpu:4", "cpu:0", "cpu", "v5e", "v5e:4", "v9x:2x2"])
def test_unknown_topology(name):
    with pytest.raises(ValueError, match="neither cpu:N, N up to 999, nor a TPU slice"):
        estimate.open_topology(name)
