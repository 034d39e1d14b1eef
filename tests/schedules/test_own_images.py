"""A two-stage run on a folder and on an .npz of one's own reads every key of its config."""

import json

import cv2
import numpy as np
import pytest
from reads import Reads
from tiny_runs import tiny

from istanas_jax.config.files import keys
from istanas_jax.schedules import two_stage

pytestmark = pytest.mark.slow
# A folder or a file of one's own has no TFDS directory; no latency is limited.
UNREAD = {"data.dir", "search.ista.budget.latency_batch"}


def write_npz(path, images, labels):
    np.savez(path, images=images, labels=labels)
    return path


def write_folder(path, images, labels):
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = path / f"class_{label}"
        folder.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / f"{number}.png"), image)
    return path


@pytest.mark.parametrize("write", [write_npz, write_folder])
def test_own_images(tmp_path, write, digits):
    name = write(tmp_path / ("own.npz" if write is write_npz else "own"), *digits)
    config = tiny(f"data.name={name}", "data.classes=0")
    reads = Reads(config)
    result = two_stage.run(reads, tmp_path / "run")
    assert 0 < result["test_accuracy"] < 1
    assert result["parameters"] > 0
    assert result["seconds"].keys() == {"search", "retrain"}
    written = json.loads((tmp_path / "run" / "result.json").read_text())
    assert written == result
    assert set(keys(config)) - reads.found == UNREAD
    for file in ("config.json", "genotype.json", "curves.svg", "cells/normal.svg", "report.html"):
        assert (tmp_path / "run" / file).stat().st_size


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    found = load_digits()
    return np.uint8(found.images[:300] * 15), found.target[:300]
