"""Arrays in an .npz are read as written, and every mistake in the file is named."""

import io
import zipfile

import numpy as np
import pytest
from small_sets import config, images, same_images, together

from istanas_jax.data import dataset
from istanas_jax.data.dataset import DataError


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
