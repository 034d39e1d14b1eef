"""Streamed images that cannot be read, and workers that are lost, are told in words."""

import multiprocessing

import numpy as np
import pytest
from pictures import PHOTOS, SIZE, difference, encode, photo, write_folder
from PIL import Image
from small_sets import open_folder
from streamed import collect, no_children

from istanas_jax.data.errors import DataError


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_unreadable_images_are_named(folder, workers):
    images = open_folder(folder, size=SIZE, workers=workers).train
    (folder / "train" / "a" / "04.jpg").write_text("no image")
    with pytest.raises(DataError, match=r"a/04\.jpg cannot be read as an image; repair or"):
        collect(images, [np.arange(14)])
    assert no_children()


def test_a_worker_that_is_killed_is_told(folder):
    images = open_folder(folder, size=SIZE, workers=1).train
    batches = images.batches([np.arange(14)] * 200, seed=(0,))
    next(batches)
    multiprocessing.active_children()[0].kill()
    with pytest.raises(DataError, match=r"was lost .*exit code -9.*fewer --config\.data\.workers"):
        list(batches)


def test_damaged_data(folder):
    images = open_folder(folder, size=SIZE).train
    file = folder / "train" / "a" / "04.jpg"
    whole = file.read_bytes()
    for content in (b"", whole[: len(whole) // 2]):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"a/04\.jpg cannot be read as an image"):
            collect(images, [np.arange(14)])
    file.unlink()
    with pytest.raises(DataError, match=r"a/04\.jpg: No such file"):
        collect(images, [np.arange(14)], None)


def test_folder(folder):
    found = open_folder(folder, size=SIZE)
    assert found.class_names == ["a", "b"]
    assert found.read_test is None
    assert list(found.train.read_labels()) == [0] * 7 + [1] * 7
    assert list(found.train.take(np.array([9, 2])).read_labels()) == [1, 0]
    (folder / "val" / "b").mkdir(parents=True)
    (folder / "val" / "b" / "x.png").write_bytes(encode(photo(3), "PNG"))
    test = open_folder(folder, size=SIZE, channels=1).read_test()
    pictures, labels = collect(test, [np.arange(1)], None)
    assert (pictures.shape, list(labels)) == ((1, SIZE, SIZE, 1), [1])
    np.testing.assert_allclose(pictures[0, ..., 0], np.asarray(photo(3).convert("L")), atol=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": 0}, "must be given a size, --config.data.image_size"),
        ({"resize": SIZE - 1}, "cannot take 64 pixels from the middle of 63"),
        ({"channels": 2}, "image_channels must be 0, 1 or 3"),
    ],
)
def test_mistakes(folder, change, words):
    with pytest.raises(DataError, match=words):
        open_folder(folder, **{"size": SIZE} | change)


def test_images_that_are_not_plain_jpegs(tmp_path):
    """Each is the same picture; what a camera says of its orientation is passed over."""
    picture = PHOTOS[0].resize((120, 80), Image.Resampling.LANCZOS)
    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter to the right
    for i, encoded in enumerate(
        (
            encode(picture, "PNG"),
            encode(picture.convert("RGBA"), "PNG"),
            encode(picture.convert("CMYK")),
            encode(picture, progressive=True),
            encode(picture, exif=turned),
            encode(picture)[:-2] + b"\0\0\xff\xd9",  # bytes too many
        )
    ):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"{i}.jpg").write_bytes(encoded)
    pictures, _ = collect(open_folder(tmp_path, size=SIZE).train, [np.arange(6)], None)
    box = (20, 0, 100, 80)
    for found in pictures:
        assert difference(found, picture, box) < 4  # of that 2 is JPEG's loss
