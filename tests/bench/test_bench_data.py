"""`bench data`: the pipeline of images measured."""

import json
import subprocess
import sys

import numpy as np
import pytest
from pictures import encode, write_folder

from istanas_jax.bench import data as bench_data
from istanas_jax.cli.main import main


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path)
    return tmp_path


def test_bench_data(folder, capsys):
    argv = ["bench", "data", "--images", "128", "--rounds", "1", f"--config.data.name={folder}"]
    assert main([*argv, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["pipeline_per_second"] > 0
    assert results["against_pillow"] > 0
    assert set(results["ms"]) == {"pillow", "crop", "decode", "read", "hand_over"}
    assert results["bottleneck"] in ("reading", "decoding", "resizing", "handing over")
    assert main([*argv, "--step-images-per-second", "0.001"]) == 0
    said = capsys.readouterr().out
    assert "times Pillow" in said
    assert "the step is the bottleneck" in said
    assert main([*argv[:-1], "--config.data.name=/nowhere"]) == 2
    assert "/nowhere does not exist" in capsys.readouterr().err


def test_made_images_are_like_imagenets():
    rng = np.random.default_rng(0)
    sizes = [len(encode(bench_data._picture(rng, 500, 375))) for _ in range(3)]
    assert 90_000 < np.mean(sizes) < 150_000


def test_processes_from_the_command_line(folder):
    """The command begins itself again with other settings; its workers must not."""
    argv = [sys.executable, "-m", "istanas_jax", "bench", "data", "--workers", "1", "--json"]
    argv += ["--images", "128", "--rounds", "1", f"--config.data.name={folder}"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["workers"] == 1
