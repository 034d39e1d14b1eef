"""Every kind of data is read as written, every mistake is named, every order can be repeated."""

import contextlib
import io
import os
import shutil
import socket
import zipfile

import cv2
import numpy as np
import pytest
from small_sets import config, images, open_folder, same_images

from istanas_jax.data import dataset, in_memory
from istanas_jax.data.dataset import DataError, Split
from istanas_jax.data.sources.folder import read_image


def together(found: dataset.Dataset) -> Split:
    """Training and test images."""
    parts = found.train, found.test()
    return Split(*(np.concatenate([getattr(p, x) for p in parts]) for x in ("images", "labels")))


def test_digits():
    found = dataset.load_dataset(
        config("digits", classes=10, image_size=8, image_channels=1, test_fraction=0.2)
    )
    test = found.test()
    assert (found.classes, found.image_size, found.image_channels) == (10, 8, 1)
    assert len(found.train.labels) + len(test.labels) == 1797
    assert found.train.images.dtype == np.uint8
    assert found.train.labels.dtype == np.int32
    assert (found.train.images.min(), found.train.images.max()) == (0, 255)
    share = np.bincount(test.labels) / np.bincount(np.r_[test.labels, found.train.labels])
    assert (abs(share - 0.2) < 0.01).all()
    again = dataset.load_dataset(config("digits", test_fraction=0.2))
    np.testing.assert_array_equal(again.test().images, test.images)
    pixels = found.train.images.astype(np.float64) / 255
    np.testing.assert_allclose(found.mean, [pixels.mean()], rtol=1e-6)
    np.testing.assert_allclose(found.std, [pixels.std()], rtol=1e-6)


@pytest.mark.parametrize("channels", [0, 1, 3])  # 0: no channel axis
def test_npz(tmp_path, channels):
    train, test = images(2500, 4, channels or 1), images(5, 4, channels or 1)
    if not channels:
        train, test = train[..., 0], test[..., 0]
    labels = np.arange(2500) % 3
    path = tmp_path / "set.npz"
    np.savez(path, images=train, labels=labels, test_images=test, test_labels=labels[:5])
    found = dataset.load_dataset(config(path, classes=3))
    np.testing.assert_array_equal(found.train.images.reshape(train.shape), train)
    np.testing.assert_array_equal(found.train.labels, labels)
    np.testing.assert_array_equal(found.test().images.reshape(test.shape), test)
    pixels = train.reshape(-1, channels or 1) / 255
    np.testing.assert_allclose(found.mean, pixels.mean(0), rtol=1e-6)
    np.testing.assert_allclose(found.std, pixels.std(0), rtol=1e-6)
    given = dataset.load_dataset(
        config(path, mean=(0.5,) * (channels or 1), std=(0.25,) * (channels or 1))
    )
    assert given.mean.dtype == np.float32
    assert (given.mean == 0.5).all()
    assert (given.std == 0.25).all()


GOOD = {"images": images(8), "labels": np.arange(8) % 2}


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"labels": GOOD["labels"]}, "no array 'images'"),
        ({"images": GOOD["images"]}, "no array 'labels'"),
        (GOOD | {"images": GOOD["images"] / 255}, "must be uint8"),
        (GOOD | {"images": GOOD["images"][0, 0]}, "must be .N, H, W."),
        (GOOD | {"images": GOOD["images"][:, :5]}, "must be square"),
        (GOOD | {"labels": GOOD["labels"][:, None]}, "must be .N, H, W."),
        (GOOD | {"labels": GOOD["labels"] * 1.0}, "must be integers"),
        (GOOD | {"labels": GOOD["labels"] - 1}, "label -1; .* count from 0"),
        (GOOD | {"labels": GOOD["labels"] + 2**32}, "label 4294967296; .* count from 0"),
        (GOOD | {"labels": np.full(8, 2**63, np.uint64)}, "label 9223372036854775808; "),
        (GOOD | {"labels": np.array(GOOD["labels"], "m8[s]")}, "must be integers"),
        (GOOD | {"labels": GOOD["labels"] == 1}, "must be integers"),
        (GOOD | {"images": GOOD["images"][..., :0]}, r"\(8, 6, 6, 0\), which leaves no pixels"),
        (GOOD | {"images": GOOD["images"][:, :0, :0]}, "which leaves no pixels"),
        (GOOD | {"images": GOOD["images"].astype("u1,u1")}, "must be uint8"),
        (GOOD | {"labels": GOOD["labels"] + 1}, "no image has label 0"),
        (GOOD | {"labels": GOOD["labels"] * 2}, "no image has label 1"),
        (GOOD | {"labels": GOOD["labels"][:7]}, "8 images, but 7 labels"),
        (GOOD | {"labels": GOOD["labels"].astype(object)}, "labels cannot be read"),
        (GOOD | {"test_images": GOOD["images"]}, "test_labels, or neither"),
        ({key: value[:0] for key, value in GOOD.items()}, "no images"),
        (GOOD | {"images": GOOD["images"] * 0}, "std is .0.0."),
    ],
)
def test_npz_mistakes(tmp_path, arrays, words):
    np.savez(tmp_path / "set.npz", **arrays)
    with pytest.raises(DataError, match=rf"set\.npz.*{words}"):
        dataset.load_dataset(config(tmp_path / "set.npz"))


def npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"images": b"no array"}, "images is not an array"),
        ({"images.npy": b"no array"}, "images is not an array"),
        ({"images.npy": npy(GOOD["images"])[:50]}, "images cannot be read"),
        ({"images.npy": npy(GOOD["images"])[:-1]}, "images cannot be read"),
        ({"notes.txt": b"mine"}, "no array 'images', only: labels, notes.txt"),
    ],
)
def test_npz_with_foreign_members(tmp_path, members, words):
    with zipfile.ZipFile(tmp_path / "set.npz", "w") as file:
        for name, content in ({"labels.npy": npy(GOOD["labels"])} | members).items():
            file.writestr(name, content)
    with pytest.raises(DataError, match=rf"set\.npz.*{words}"):
        dataset.load_dataset(config(tmp_path / "set.npz"))


def test_damaged_npz(tmp_path):
    """Cut or overwritten anywhere: a sentence with its name, or what was written."""
    path = tmp_path / "set.npz"
    np.savez_compressed(path, **GOOD)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    cut = [whole[: rng.integers(len(whole))] for _ in range(100)]
    flipped = [bytearray(whole) for _ in range(200)]
    for content in flipped:
        content[rng.integers(len(whole))] ^= 1 << rng.integers(8)
    refused = 0
    for content in (*cut, *flipped):
        path.write_bytes(content)
        try:
            found = dataset.load_dataset(config(path))
        except DataError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            refused += 1
        else:  # a bit that says nothing about the arrays, such as a date
            assert same_images(together(found), GOOD["images"], GOOD["labels"])
    assert refused > 200


def test_test_part_must_fit_the_training_part(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, **GOOD, test_images=images(2), test_labels=np.zeros(2, int))
    found = dataset.load_dataset(config(path))
    for size, label, words in (
        (5, 0, "test images are 5 x 5 x 1"),
        (6, 2, "label 2"),
        (6, 2**32, "test_labels has a label 4294967296"),
    ):
        np.savez(path, **GOOD, test_images=images(2, size), test_labels=np.full(2, label))
        with pytest.raises(DataError, match=words):
            dataset.load_dataset(config(path))  # at once
        with pytest.raises(DataError, match=words):
            found.test()  # when it became so in between


def test_files_that_are_not_there_or_not_npz(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        dataset.load_dataset(config(tmp_path / "none.npz"))
    with pytest.raises(DataError, match="does not exist"):
        dataset.load_dataset(config(tmp_path / "none"))
    (tmp_path / "text.npz").write_text("no zip")
    (tmp_path / "empty.npz").write_bytes(b"")
    with (tmp_path / "array.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    for name in ("text.npz", "empty.npz", "array.npz"):
        with pytest.raises(DataError, match=r"not an \.npz"):
            dataset.load_dataset(config(tmp_path / name))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"classes": 7}, "classes 10, but the config says 7"),
        ({"image_size": 32}, "image_size 8"),
        ({"image_channels": 3}, "image_channels 1"),
        ({"mean": (0.1, 0.2)}, "mean has 2 values for 1 channel"),
        ({"std": (0.0,)}, "above 0"),
        ({"test_fraction": 0.0}, "no test images of its own"),
        ({"test_fraction": 1.0}, "no test images of its own"),
        ({"test_fraction": 1e-4}, "classes are too small"),
    ],
)
def test_config_must_fit_the_data(change, words):
    with pytest.raises(DataError, match=words):
        dataset.load_dataset(config("digits", **change))


def write_folder(root, written, labels):
    for i, (image, label) in enumerate(zip(written, labels, strict=True)):
        folder = root / "abc"[label]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = image[..., ::-1] if image.shape[2] == 3 else image  # cv2 writes BGR
        assert cv2.imwrite(str(folder / f"{i:03}.png"), pixels)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("test_name", ["test", "val", "validation", None])
def test_folder(tmp_path, channels, test_name):
    train, test = images(12, channels=channels), images(4, channels=channels)
    write_folder(tmp_path / "train", train, np.arange(12) % 3)
    (tmp_path / "train" / "a" / ".hidden.png").write_text("not an image")
    (tmp_path / "train" / "a" / "notes.txt").write_text("not an image")
    (tmp_path / "train" / ".cache").mkdir()
    if test_name:
        write_folder(tmp_path / test_name, test, np.arange(4) % 3)
    found = dataset.load_dataset(config(tmp_path))
    assert found.class_names == ("a", "b", "c")
    assert (found.image_size, found.image_channels) == (6, channels)
    if test_name:
        assert same_images(found.train, train, np.arange(12) % 3)
        assert same_images(found.test(), test, np.arange(4) % 3)
    else:
        assert same_images(together(found), train, np.arange(12) % 3)
        assert list(np.bincount(found.test().labels)) == [1, 1, 1]


def test_folder_resizes(tmp_path):
    """Shrinking by area averages whole pixels; an image that is not square becomes so."""
    image = images(1, 8, 1)[0]
    write_folder(tmp_path, [image] * 4, [0, 0, 1, 1])
    found = dataset.load_dataset(
        config(tmp_path, image_size=4, image_channels=3, test_fraction=0.5)
    )
    expected = image[..., 0].reshape(4, 2, 4, 2).mean((1, 3))
    assert found.train.images.shape[1:] == (4, 4, 3)
    assert (abs(found.train.images - expected[None, :, :, None]) <= 0.5).all()


def test_one_odd_image_does_not_decide_about_all(tmp_path):
    write_folder(tmp_path, images(12), np.arange(12) % 3)
    cv2.imwrite(str(tmp_path / "a" / "000.png"), images(1, 1, 3)[0])
    found = dataset.load_dataset(config(tmp_path))
    assert found.train.image_shape == (6, 6, 1)
    assert open_folder(tmp_path, size=6).preparation.channels == 1
    for i, path in enumerate(sorted(tmp_path.glob("*/*.png"))):
        cv2.imwrite(str(path), images(1, 5 + i, 3)[0][: 4 + i])  # of any size, and not square
    assert dataset.load_dataset(config(tmp_path)).train.image_shape == (10, 10, 3)


@pytest.mark.parametrize("suffix", [".png", ".npz"])
@pytest.mark.parametrize("what", ["pipe", "socket", "folder", "link"])
def test_only_regular_files_are_opened(tmp_path, suffix, what):
    """A pipe that nobody writes to would be waited for without end."""
    write_folder(tmp_path, images(8), np.arange(8) % 2)
    path = tmp_path / "a" / f"x{suffix}"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "link":
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe")
    else:
        with contextlib.chdir(tmp_path / "a"), socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)  # the name may have no more than 107 bytes
    told = rf"x\{suffix}:? is not a regular file"
    if suffix == ".npz":
        with pytest.raises(DataError, match=told):
            dataset.load_dataset(config(path))
        return
    for use in (
        lambda: dataset.load_dataset(config(tmp_path)),
        lambda: open_folder(tmp_path, size=6),
    ):
        with pytest.raises(DataError, match=told):
            use()
    with pytest.raises(DataError, match=told):
        read_image(path)


def test_too_little_to_learn_from(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, images=images(8), labels=np.zeros(8, int))
    with pytest.raises(DataError, match="one class only, '0'; there must be two"):
        dataset.load_dataset(config(path))
    np.savez(path, images=images(8, 1), labels=GOOD["labels"])
    with pytest.raises(DataError, match="1 x 1 pixels are too small"):
        dataset.load_dataset(config(path))
    write_folder(tmp_path / "folder", images(8), [0] * 8)
    with pytest.raises(DataError, match="one class only, 'a'"):
        dataset.load_dataset(config(tmp_path / "folder"))


def test_folder_mistakes(tmp_path, monkeypatch):
    root = tmp_path / "train"
    root.mkdir()
    with pytest.raises(DataError, match="no class folders"):
        dataset.load_dataset(config(tmp_path))
    write_folder(root, images(8), np.arange(8) % 2)
    write_folder(tmp_path / "test", images(3), [0, 1, 2])
    with pytest.raises(DataError, match="test/c is not a class"):
        dataset.load_dataset(config(tmp_path))
    shutil.rmtree(tmp_path / "test" / "c")
    with pytest.raises(DataError, match="image_channels must be"):
        dataset.load_dataset(config(tmp_path, image_channels=2))
    (tmp_path / "test" / "a" / "bad.png").write_bytes(b"")
    found = dataset.load_dataset(config(tmp_path))  # the test images are not read yet
    with pytest.raises(DataError, match=r"bad\.png cannot be read"):
        found.test()
    (root / "b" / "bad.jpg").write_text("no image")
    with pytest.raises(DataError, match=r"bad\.jpg cannot be read"):
        dataset.load_dataset(config(tmp_path))
    (root / "b" / "bad.jpg").unlink()
    (root / "c").mkdir()
    with pytest.raises(DataError, match="train/c has no images"):
        dataset.load_dataset(config(tmp_path))
    monkeypatch.setattr(in_memory, "MAX_BYTES", 100)
    (root / "c").rmdir()
    with pytest.raises(DataError, match="not fit in memory"):
        dataset.load_dataset(config(tmp_path))


@pytest.mark.parametrize(("num", "fraction"), [(10, 0.5), (11, 0.3), (5, 0.0), (5, 1.0)])
def test_divide(num, fraction):
    first, second = dataset.divide(num, fraction, seed=1)
    assert len(first) == round(num * fraction)
    np.testing.assert_array_equal(np.sort(np.r_[first, second]), np.arange(num))
    assert (np.diff(first) > 0).all()
    assert (np.diff(second) > 0).all()


def test_orders_depend_on_every_argument():
    base = {"seed": 0, "epoch": 0, "stream": 0}
    orders = [
        tuple(dataset.order(30, **base | change)) for change in ({}, {}, *({k: 1} for k in base))
    ]
    assert orders[0] == orders[1]
    assert len(set(orders)) == 4
    assert all(sorted(order) == list(range(30)) for order in orders)
    assert (dataset.divide(30, 0.5, seed=0)[0] != dataset.divide(30, 0.5, seed=1)[0]).any()


def test_batches_resume_in_the_middle():
    keys = {"seed": 5, "epoch": 2, "stream": 1}
    straight = list(dataset.batch_indices(23, 4, **keys))
    assert [len(batch) for batch in straight] == [4] * 5
    assert len(set(np.concatenate(straight))) == 20
    for first in range(6):
        resumed = list(dataset.batch_indices(23, 4, **keys, first=first))
        assert len(resumed) == 5 - first
        for a, b in zip(resumed, straight[first:], strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(DataError, match="do not fill a batch of 4"):
        dataset.batch_indices(3, 4, **keys)  # at the call, not at the first batch


@pytest.mark.parametrize("num", [3, 8, 9])
def test_padded_indices_have_every_image_once(num):
    seen = []
    for indices, weights in dataset.padded_indices(num, 4):
        assert indices.shape == weights.shape == (4,)
        assert (indices < num).all()
        real = weights == 1
        assert (weights[~real] == 0).all()
        seen += list(indices[real])
    assert seen == list(range(num))
