"""Images in class folders are read as written, and every mistake in the folder is named."""

import contextlib
import os
import shutil
import socket

import cv2
import numpy as np
import pytest
from small_sets import config, images, open_folder, same_images, together

from istanas_jax.data import dataset, in_memory
from istanas_jax.data.dataset import DataError
from istanas_jax.data.sources.folder import read_image


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
    np.savez(path, images=images(8, 1), labels=np.arange(8) % 2)
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
