"""Sets of TensorFlow Datasets are prepared and read without TensorFlow."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import requests
import tensorflow_datasets as tfds
from small_sets import config, same_images
from tfds_sets import TinyGray

from istanas_jax.data import dataset, in_memory, sources
from istanas_jax.data.dataset import DataError

RNG = np.random.default_rng(1)


def test_tfds_of_one_channel(tiny_gray):
    found = dataset.load_dataset(config("tiny_gray", dir=str(tiny_gray)))
    assert found.class_names == ("no", "yes")
    assert same_images(found.train, TinyGray.IMAGES[:8], np.arange(8) % 2)
    assert same_images(found.test(), TinyGray.IMAGES[8:], np.arange(8, 11) % 2)
    resized = dataset.load_dataset(config("tiny_gray", dir=str(tiny_gray), image_size=4))
    assert resized.train.images.shape == (8, 4, 4, 1)
    with pytest.raises(DataError, match="image_channels 1"):
        dataset.load_dataset(config("tiny_gray", dir=str(tiny_gray), image_channels=3))
    assert sources.prepare("tiny_gray", str(tiny_gray)).endswith("1.0.0")  # there already


def test_prepare_cifar10_without_tensorflow(tmp_path, monkeypatch):
    """The original files, as the download would bring them, come out to the pixel."""
    source = tmp_path / "cifar-10-batches-bin"
    source.mkdir()
    records = RNG.integers(0, 256, (6, 2, 3073), dtype=np.uint8)
    records[..., 0] = np.arange(2)
    files = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    for file, record in zip(files, records, strict=True):
        record.tofile(source / file)
    (source / "batches.meta.txt").write_text("\n".join("abcdefghij"))
    manager = tfds.download.DownloadManager
    monkeypatch.setattr(manager, "download_and_extract", lambda self, url: str(tmp_path))
    sources.prepare("cifar10", str(tmp_path / "tfds"))
    assert "tensorflow" not in sys.modules
    found = dataset.load_dataset(config("cifar10", dir=str(tmp_path / "tfds")))
    pixels = records[:5, :, 1:].reshape(10, 3, 32, 32).transpose(0, 2, 3, 1)
    assert same_images(found.train, pixels, [0, 1] * 5)


def test_tfds_mistakes(tmp_path, tiny_gray, monkeypatch):
    for name in ("cifar_10", "cifar-10"):  # the second is not even a name to TFDS
        with pytest.raises(DataError, match=r"near names: .*cifar10.*\.npz"):
            dataset.load_dataset(config(name))
    with pytest.raises(DataError, match="TFDS cannot open 'cifar10:"):
        dataset.load_dataset(config("cifar10:1.0.0", dir=str(tmp_path)))
    command = f"`python -m istanas_jax prepare cifar10 --dir {tmp_path}`"
    with pytest.raises(DataError, match=command):
        dataset.load_dataset(config("cifar10", dir=str(tmp_path)))
    monkeypatch.setattr(in_memory, "MAX_BYTES", 100)
    with pytest.raises(DataError, match="not fit in memory"):
        dataset.load_dataset(config("tiny_gray", dir=str(tiny_gray)))


def test_tfds_other_format_or_splits(tmp_path, tiny_gray):
    """What TFDS wrote, changed to what it would write for another format or another set."""
    shutil.copytree(tiny_gray, tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "tiny_gray" / "1.0.0"
    info_file = folder / "dataset_info.json"
    info = json.loads(info_file.read_text())
    without_train = info | {"splits": [s for s in info["splits"] if s["name"] != "train"]}
    info_file.write_text(json.dumps(without_train))
    with pytest.raises(DataError, match="no train split, only: validation"):
        dataset.load_dataset(config("tiny_gray", dir=str(tmp_path)))
    for path in folder.glob("*.array_record-*"):
        path.rename(str(path).replace("array_record", "tfrecord"))
    info_file.write_text(json.dumps(info | {"fileFormat": "tfrecord"}))
    for job in (dataset.load_dataset, lambda c: sources.prepare(c.name, c.dir)):
        with pytest.raises(DataError, match=r"as tfrecord, not .* prepare tiny_gray --dir DIR`"):
            job(config("tiny_gray", dir=str(tmp_path)))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            requests.exceptions.ConnectionError(request=SimpleNamespace(url="https://there/x")),
            "no connection to https://there/x",
        ),
        (AssertionError("put the files\n  into manual/"), "prepared: put the files into manual/"),
        (AttributeError("module 'tensorflow' has no attribute 'x'"), "needs TensorFlow"),
    ],
)
def test_prepare_says_what_failed(tmp_path, monkeypatch, error, words):
    def fail(self):
        raise error

    monkeypatch.setattr(TinyGray, "download_and_prepare", fail)
    with pytest.raises(DataError, match=words):
        sources.prepare("tiny_gray", str(tmp_path))


def test_real_cifar10_without_tensorflow(shared):
    code = f"""
import sys
import numpy as np
from ml_collections import ConfigDict
from istanas_jax.data.dataset import load_dataset
keys = dict(classes=10, image_size=32, image_channels=3, mean=(), std=(), test_fraction=0.0)
folder = {str(shared / "data" / "tfds")!r}
found = load_dataset(ConfigDict(dict(name="cifar10", dir=folder, **keys)))
assert found.class_names[:2] == ("airplane", "automobile")
assert found.train.images.shape == (50000, 32, 32, 3)
assert (np.bincount(found.train.labels) == 5000).all()
assert (np.bincount(found.test().labels) == 1000).all()
# What the release gives, but for the JPEG.
np.testing.assert_allclose(found.mean, (0.4914, 0.4822, 0.4465), atol=1e-3)
np.testing.assert_allclose(found.std, (0.2470, 0.2435, 0.2616), atol=3e-3)
assert not {{"tensorflow", "jax"}} & set(sys.modules)
"""
    if not (shared / "data" / "tfds" / "cifar10").is_dir():
        pytest.skip("CIFAR-10 is not among the reference data")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
