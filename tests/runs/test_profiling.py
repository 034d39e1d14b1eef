"""A profile of the steps asked for is in the run's folder, and only of those."""

import gzip
import json
from dataclasses import replace

import pytest
from places import ROOT
from tiny_runs import tiny

from istanas_jax.cli.main import main
from istanas_jax.config.files import load_config
from istanas_jax.schedules import retrain
from istanas_jax.space.genotype import random_genotype
from istanas_jax.space.spaces import DARTS


@pytest.mark.slow
def test_the_steps_asked_for_are_recorded(tmp_path, capsys):
    config = retrain.config_for(tiny(), random_genotype(0, replace(DARTS, nodes=2)).to_json())
    with config.unlocked():
        config.log.profile = "1:3"
    retrain.run(config, tmp_path / "run")
    folder = tmp_path / "run" / "profile" / "retrain_0"
    assert f"retrain 0: a profile of steps 1 to 3 is in {folder}" in "".join(capsys.readouterr())
    (file,) = folder.rglob("*.trace.json.gz")
    with gzip.open(file) as content:
        events = json.load(content)["traceEvents"]
    steps = [event["args"]["step_num"] for event in events if event.get("name") == "retrain 0"]
    assert steps == ["1", "2"]


@pytest.mark.parametrize("steps", ["20:10", "10", "a:b", "3:3", "-1:4"])
def test_steps_that_are_none(steps, tmp_path, capsys):
    digits = str(ROOT / "configs" / "digits.py:tiny")
    words = ["run", "--config", digits, "--workdir", str(tmp_path / "run"), f"--profile={steps}"]
    assert main(words) == 2
    assert f"log.profile is {steps}, it must be FIRST:LAST" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_bucket_has_no_profiles(capsys):
    words = ["run", "--config", str(ROOT / "configs" / "digits.py:tiny"), "--profile", "1:2"]
    assert main([*words, "--workdir", "gs://nobody/run", "--dry-run"]) == 2
    capsys.readouterr()


def test_it_is_a_key_of_the_config():
    override = "--config.log.profile=10:20"
    assert load_config(str(ROOT / "configs" / "digits.py"), [override]).log.profile == "10:20"
