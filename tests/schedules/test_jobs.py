"""Bad input to run, search and retrain: one sentence, exit code 2, nothing overwritten."""

import json

import cv2
import numpy as np
import pytest
from places import ROOT

from istanas_jax.cli.main import main
from istanas_jax.config.files import load_config
from istanas_jax.runs.folder import Workdir

DIGITS = str(ROOT / "configs" / "digits.py:tiny")


def refused(capsys, *arguments) -> str:
    """The sentence on stderr."""
    assert main(list(arguments)) == 2
    said = capsys.readouterr().err
    assert said.startswith("istanas: ")
    assert said.count("\n") == 1
    return said


def run(capsys, tmp_path, *overrides, command="run", config=DIGITS):
    workdir = str(tmp_path / "workdir")
    return refused(capsys, command, "--config", config, "--workdir", workdir, *overrides)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("search.batch=15", "search.batch 15 cannot be divided by 2 devices"),
        ("train.batch=17", "train.batch 17 cannot be divided by 2 devices"),
        ("data.name=cifar_100", "cifar_100"),
        ("data.name=./nowhere", "data folder ./nowhere does not exist"),
        ("data.name=nothing.npz", "data file nothing.npz does not exist"),
        ("data.classes=11", "digits has classes 10, but the config says 11"),
        ("data.test_fraction=0.0", "give the fraction of its images to keep for testing"),
        ("search.batch=1000", "search.batch is 1000, but there are 647 images for W"),
        ("train.batch=2000", "train.batch is 2000, but there are 1294 images for training"),
        (
            "search.ista.recovery.every=often",
            'search.ista.recovery.every is often, it must be "epoch", "step" or a number',
        ),
        (
            "search.weights.learning_rate_schedule=steps",
            "learning_rate_schedule is steps, it must be one of cosine, linear, constant",
        ),
        ("search.stem=resnet", "search.stem is resnet, it must be one of cifar, imagenet"),
        ("search.dtype=float17", "search.dtype is float17, it must be one of float32, bf"),
        ("search.epoch=3", "did you mean search.epochs?"),
        ("search.epochs=0", "search.epochs is 0, it must be a whole number from 1 to 100,000"),
        ("data.holdout_fraction=1.5", "data.holdout_fraction is 1.5, it must be from 0 to below 1"),
    ],
)
def test_config(capsys, tmp_path, override, sentence):
    assert sentence in run(capsys, tmp_path, f"--config.{override}")
    # So that the corrected command finds a folder of nobody's.
    assert not (tmp_path / "workdir" / "config.json").exists()


def test_unreadable_image(capsys, tmp_path):
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        cv2.imwrite(str(tmp_path / "images" / label / "1.png"), np.zeros((8, 8), np.uint8))
    (tmp_path / "images" / "cat" / "2.png").write_bytes(b"not an image")
    said = run(capsys, tmp_path, f"--config.data.name={tmp_path / 'images'}")
    assert str(tmp_path / "images" / "cat" / "2.png") in said


def test_class_folder_with_nothing_in_it(capsys, tmp_path):
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "dog").mkdir()
    cv2.imwrite(str(tmp_path / "images" / "cat" / "1.png"), np.zeros((8, 8), np.uint8))
    said = run(capsys, tmp_path, f"--config.data.name={tmp_path / 'images'}")
    assert str(tmp_path / "images" / "dog") in said


@pytest.mark.parametrize(
    ("genotype", "sentence"),
    [
        ("ISTA_two_stage", "did you mean ISTA_twostage"),
        ("Genotype(normal=[])", "the field 'normal_concat' is missing"),
        ('{"normal": 3}', "is missing"),
    ],
)
def test_genotype(capsys, tmp_path, genotype, sentence):
    assert sentence in run(capsys, tmp_path, "--genotype", genotype, command="retrain")
    assert not (tmp_path / "workdir").exists()


def test_genotype_file_with_an_operation_that_does_not_exist(capsys, tmp_path):
    file = tmp_path / "cell.json"
    cell = [["conv_9x9", 0], ["skip_connect", 1]]
    fields = {"normal": cell, "normal_concat": [2], "reduce": cell, "reduce_concat": [2]}
    file.write_text(json.dumps(fields))
    said = run(capsys, tmp_path, "--genotype", str(file), command="retrain")
    assert "conv_9x9" in said
    assert str(file) in said


def test_folder_that_holds_something_else(capsys, tmp_path):
    (tmp_path / "workdir").mkdir()
    (tmp_path / "workdir" / "thesis.tex").write_text("years of work")
    assert "holds other files and no run" in run(capsys, tmp_path)
    assert [path.name for path in (tmp_path / "workdir").iterdir()] == ["thesis.tex"]


def test_changed_config_is_refused_with_what_differs(capsys, tmp_path):
    config = load_config(DIGITS, ["--config.search.epochs=5"])
    with Workdir.open(tmp_path / "workdir", config).work(config):
        assert "another process is working in" in run(capsys, tmp_path, "--config.search.epochs=5")
    before = (tmp_path / "workdir" / "config.json").read_text()
    said = run(
        capsys,
        tmp_path,
        "--config.search.epochs=7",
        "--config.data.pad=2",
        "--config.checkpoint.keep_last=5",
    )
    assert "data.pad was 1, is 2, search.epochs was 5, is 7;" in said
    assert "checkpoint" not in said
    assert (tmp_path / "workdir" / "config.json").read_text() == before


def test_schedule_of_another_command(capsys, tmp_path):
    config = str(ROOT / "configs" / "cifar10_retrain.py")
    said = run(capsys, tmp_path, command="search", config=config)
    assert "the schedule of" in said
    assert "is retrain" in said


def test_unknown_argument(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["run", "--config", DIGITS, "--workdir", "x", "--epochs=3"])
    assert stop.value.code == 2
    assert "unknown arguments: --epochs=3" in capsys.readouterr().err
