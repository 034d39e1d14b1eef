"""A whole training on images that are streamed: ImageNet's recipe on a small folder."""

import io
import json

import numpy as np
import pytest
from PIL import Image
from places import ROOT

from istanas_jax.cli.main import main
from istanas_jax.config.files import load_config
from istanas_jax.data.dataset import load_dataset

pytestmark = pytest.mark.slow

CLASSES = 6


def write_images(folder, per_class: int) -> None:
    rng = np.random.default_rng(0)
    for label in range(CLASSES):
        (folder / f"class {label}").mkdir(parents=True)
        for number in range(per_class):
            noise = rng.integers(0, 60, (70, 90, 3))
            noise[..., label % 3] += 30 * (1 + label)
            file = io.BytesIO()
            Image.fromarray(noise.astype(np.uint8)).save(file, "JPEG")
            (folder / f"class {label}" / f"{number}.jpg").write_bytes(file.getvalue())


def test_training_on_streamed_images(tmp_path):
    write_images(tmp_path / "images" / "train", 8)
    write_images(tmp_path / "images" / "val", 3)
    config = str(ROOT / "configs" / "imagenet_retrain.py:tiny")
    overrides = [
        f"--config.data.name={tmp_path / 'images'}",
        f"--config.data.classes={CLASSES}",
        "--config.data.image_size=32",
        "--config.data.resize=36",
        "--config.train.cells=2",
        "--config.train.auxiliary_weight=0.0",
        "--config.train.epochs=1",
        "--config.train.weights.warmup_epochs=0",
    ]
    arguments = ["retrain", "--config", config, "--workdir", str(tmp_path / "run"), *overrides]
    assert main(arguments) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    # 18 test images, 6 classes: one of five is more often right than one.
    assert 0 <= result["test_accuracy"] <= result["test_top5_accuracy"] <= 1
    assert result["test_top5_accuracy"] * 18 == round(result["test_top5_accuracy"] * 18)

    dataset = load_dataset(load_config(config, overrides).data)
    assert dataset.train.image_shape == (32, 32, 3)
    assert len(dataset.train) == 48
    assert len(dataset.test()) == 18
