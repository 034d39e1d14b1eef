"""Test images that do not fit are found at the start; images that changed stop a run."""

import json
import os
import shutil

import cv2
import numpy as np
import pytest
from small_sets import config as data_config
from tiny_runs import tiny

from istanas_jax.cli.main import main
from istanas_jax.data import dataset
from istanas_jax.data.dataset import DataError
from istanas_jax.data.fingerprints import gather_facts
from istanas_jax.data.sources import tfds
from istanas_jax.runs.folder import WorkdirError
from istanas_jax.runs.session import open_session

RNG = np.random.default_rng(0)
PARTS = {
    "images": RNG.integers(0, 256, (40, 8, 8, 1), dtype=np.uint8),
    "labels": np.arange(40) % 10,
    "test_images": RNG.integers(0, 256, (20, 8, 8, 1), dtype=np.uint8),
    "test_labels": np.arange(20) % 10,
}


def write_npz(path, **changes):
    np.savez(path, **PARTS | changes)
    return path


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"test_labels": np.arange(20)}, "a test image has label 19, but the training labels end"),
        ({"test_labels": np.full(20, -1)}, "test_labels has a label -1"),
        ({"test_labels": np.arange(19) % 10}, "20 test_images, but 19 test_labels"),
        ({"test_labels": np.zeros(20)}, "test_labels must be integers"),
        ({"test_images": PARTS["test_images"][:, :6, :6]}, "test images are 6 x 6 x 1, training"),
        ({"test_images": PARTS["test_images"][..., [0] * 3]}, "test images are 8 x 8 x 3, trai"),
        ({"test_images": PARTS["test_images"] / 255}, "test_images must be uint8"),
        ({"test_images": PARTS["test_images"][:0], "test_labels": np.arange(0)}, "has no images"),
    ],
)
def test_test_images_that_do_not_fit_are_found_at_the_start(tmp_path, capsys, changes, sentence):
    path = write_npz(tmp_path / "own.npz", **changes)
    run = ["run", "--config", "configs/images.py", "--workdir", str(tmp_path / "run")]
    assert main([*run, f"--config.data.name={path}"]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_start_reads_labels_and_shapes_only(tmp_path):
    larger = {key: PARTS[key].repeat(4, 1).repeat(4, 2) for key in ("images", "test_images")}
    path = write_npz(tmp_path / "own.npz", **larger)
    content = bytearray(path.read_bytes())
    where = content.find(larger["test_images"].tobytes()[:64]) + 10_000
    content[where] ^= 1
    path.write_bytes(content)
    found = dataset.load_dataset(data_config(str(path)))
    with pytest.raises(DataError, match="test_images cannot be read"):
        found.test()


def test_labels_of_tfds_test_images(tiny_gray, monkeypatch):
    """All are looked at, and no image is decoded; streamed ones are too many: first and last."""
    given = data_config("tiny_gray", dir=str(tiny_gray))
    monkeypatch.setattr(tfds, "TEST_NAMES", ("validation",))
    read = tfds.Records.read

    def wrong(self, numbers):
        bad = 9 if "validation" in self.name else None  # the last but one of three
        for number, (image, label) in zip(numbers, read(self, numbers), strict=True):
            yield image, bad if bad and number == 1 else label

    source = tfds.find_records("tiny_gray", str(tiny_gray)).open_test()
    everything = gather_facts(source, (6, 6, 1))
    some = gather_facts(source, (6, 6, 1), all_labels=False)
    assert sorted(everything.labels) == [0, 0, 1]
    assert some.labels.tolist() == everything.labels[[0, -1]].tolist()
    assert len(some) == len(everything) == 3
    monkeypatch.setattr(tfds.Records, "read", wrong)
    with pytest.raises(DataError, match="a test image has label 9"):
        dataset.load_dataset(given)


# Images that changed.


def begin(config, folder):
    with open_session(config, folder):
        pass


def marked_run(config, folder):
    """A run's folder that was begun with these images."""
    folder.mkdir()
    plain = json.loads(config.to_json_best_effort())
    (folder / "config.json").write_text(json.dumps(plain))
    begin(config, folder)
    return folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"images": PARTS["images"] ^ np.eye(8, dtype=np.uint8)[None, ..., None]}, "train.content"),
        ({"labels": (np.arange(40) + 1) % 10}, "train.labels"),
        ({"test_images": 255 - PARTS["test_images"]}, "test.content"),
        ({"test_labels": (np.arange(20) + 1) % 10}, "test.labels"),
        (
            {"images": PARTS["images"][:30], "labels": PARTS["labels"][:30]},
            "train.images was 40, is 30",
        ),
    ],
)
def test_an_npz_that_changed_is_refused(tmp_path, changes, said):
    path = write_npz(tmp_path / "own.npz")
    small = ["search.batch=2", "train.batch=2", "data.max_images=0", "data.classes=0"]
    config = tiny(f"data.name={path}", *small)
    run = marked_run(config, tmp_path / "run")
    begin(config, run)  # as it was
    write_npz(path, **changes)
    with pytest.raises(WorkdirError) as error:
        begin(config, run)
    assert f"{path} is not as it was when the run in {run} was begun: " in str(error.value)
    assert said in str(error.value)


def write_folder(root, number=4):
    for split in ("train", "test"):
        for label in "ab":
            folder = root / split / label
            folder.mkdir(parents=True)
            for i in range(number):
                image = RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                cv2.imwrite(str(folder / f"{i}.png"), image)
    return root


def add_file(path):
    shutil.copy(path, path.with_name("9.png"))


def other_size(path):
    path.write_bytes(path.read_bytes() + b"more")


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("change", [add_file, other_size, os.remove])
@pytest.mark.parametrize("stream", [True, False])
def test_folders_that_changed(tmp_path, split, change, stream):
    """What is streamed is known by names, sizes and labels, what is in memory by its pixels."""
    root = write_folder(tmp_path / "own")
    plain = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "image_size": 8}
    given = data_config(str(root), **plain)
    given.stream = stream
    before = dataset.load_dataset(given).marks
    shutil.copytree(root, tmp_path / "moved")
    assert dataset.load_dataset(given).marks == before
    change(root / split / "a" / "1.png")
    after = dataset.load_dataset(given).marks
    same_pixels = change is other_size and split == "train" and not stream
    assert (after[split] == before[split]) == same_pixels
    other = {"train": "test", "test": "train"}[split]
    assert after[other] == before[other]
    given.name = str(tmp_path / "moved")  # where it is does not matter
    assert dataset.load_dataset(given).marks == before


def test_a_run_without_marks_gets_them(tmp_path):
    """As those of earlier versions are."""
    config = tiny()
    run = marked_run(config, tmp_path / "run")
    marks = json.loads((run / "data.json").read_text())
    assert marks["train"]["shape"] == [8, 8, 1]
    (run / "data.json").unlink()
    begin(config, run)
    assert json.loads((run / "data.json").read_text()) == marks
