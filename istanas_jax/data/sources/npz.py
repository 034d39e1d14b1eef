"""Arrays in an .npz file: `images` and `labels`, and perhaps `test_images` and `test_labels`.

Each array is checked before it is used.
"""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
from ml_collections import ConfigDict

from istanas_jax.data.contract import Claim, DataSource, Found
from istanas_jax.data.errors import DataError
from istanas_jax.data.fingerprints import TestFacts, checksum
from istanas_jax.data.in_memory import Split
from istanas_jax.data.preparation import Preparation
from istanas_jax.storage.files import check_regular

MOST = np.iinfo(np.int32).max  # what labels are stored as


class Npz(DataSource):
    claim = Claim.SUFFIX
    can_stream = False

    def means(self, name: str) -> bool:
        return name.endswith(".npz")

    def offer(self, name: str) -> str:
        return "an .npz"

    def open(self, name: str, config: ConfigDict) -> Found:
        return read_npz(name)


def read_npz(path: str) -> Found:
    """Read the training images, and look at the test images if the file has some."""
    with _open(path) as file:
        keys = set(file.files)
    if ("test_images" in keys) != ("test_labels" in keys):
        raise DataError(f"{path} needs test_images and test_labels, or neither of them")
    train = _part(path, "")
    present = np.unique(train.labels)
    if present.size and present[-1] >= present.size:
        gap = np.flatnonzero(present != np.arange(present.size))[0]
        raise DataError(f"{path}: no image has label {gap}; number the classes without gaps")
    names = [str(label) for label in present]
    size, _, channels = train.image_shape
    how = Preparation(size, channels)
    if "test_images" not in keys:
        return Found(train, names, None, how)
    facts = partial(_facts, path, "test_")
    return Found(train, names, partial(_part, path, "test_"), how, facts)


def _part(path: str, prefix: str) -> Split:
    images, labels = (_array(path, f"{prefix}{key}") for key in ("images", "labels"))
    _check(path, prefix, images, labels)
    return Split(images if images.ndim == 4 else images[..., None], labels.astype(np.int32))


def _facts(path: str, prefix: str) -> TestFacts:
    """Read the labels, and of the images only the array's header and the checksum in the zip."""
    labels, key = _array(path, f"{prefix}labels"), f"{prefix}images"
    try:
        with zipfile.ZipFile(path) as file, file.open(f"{key}.npy") as member:
            newer = np.lib.format.read_magic(member) > (1, 0)
            of = np.lib.format
            read = of.read_array_header_2_0 if newer else of.read_array_header_1_0
            shape, _, dtype = read(member)
            content = f"{file.getinfo(f'{key}.npy').CRC:08x}"
    except Exception as error:  # as in `_array`
        raise DataError(f"{path}: {key} cannot be read: {_line(error)}") from None
    images = np.broadcast_to(np.zeros((), dtype), shape)  # takes no memory
    _check(path, prefix, images, labels)
    image_shape = (*shape[1:], 1)[:3]
    marks = {"images": len(labels), "shape": list(image_shape)}
    marks |= {"labels": checksum(labels.astype(np.int32)), "content": content}
    return TestFacts(len(labels), image_shape, labels, marks)


def _check(path: str, prefix: str, images: np.ndarray, labels: np.ndarray) -> None:
    if images.dtype != np.uint8:
        raise DataError(f"{path}: {prefix}images must be uint8 of 0 ... 255, not {images.dtype}")
    if images.ndim not in (3, 4) or labels.ndim != 1:
        raise DataError(
            f"{path}: {prefix}images must be (N, H, W) or (N, H, W, C) and {prefix}labels (N,), "
            f"not {images.shape} and {labels.shape}"
        )
    if 0 in images.shape[1:]:
        raise DataError(
            f"{path}: {prefix}images is {images.shape}, which leaves no pixels: height, width and "
            "channels must be at least 1"
        )
    if labels.dtype.kind not in "iu":
        raise DataError(f"{path}: {prefix}labels must be integers, not {labels.dtype}")
    if len(images) != len(labels):
        raise DataError(f"{path}: {len(images)} {prefix}images, but {len(labels)} {prefix}labels")
    for label in (int(labels.min()), int(labels.max())) if len(labels) else ():
        if not 0 <= label <= MOST:
            raise DataError(
                f"{path}: {prefix}labels has a label {label}; labels number the classes and "
                "count from 0"
            )


def _array(path: str, key: str) -> np.ndarray:
    with _open(path) as file:
        if key not in file.files:
            raise DataError(f"{path} has no array {key!r}, only: {', '.join(file.files)}")
        try:
            array = file[key]
        except Exception as error:  # numpy, zipfile and zlib each raise their own
            raise DataError(f"{path}: {key} cannot be read: {_line(error)}") from None
    if not isinstance(array, np.ndarray):  # numpy gives the bytes of what it did not write
        raise DataError(f"{path}: {key} is not an array; write it with numpy.savez")
    return array


@contextmanager
def _open(path: str) -> Iterator[np.lib.npyio.NpzFile]:
    try:
        check_regular(path)
        stream = open(path, "rb")  # noqa: SIM115  closed below; numpy leaves a bad one open
    except FileNotFoundError:
        raise DataError(f"data file {path} does not exist") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    with stream:
        try:
            file = np.load(stream, allow_pickle=False)
        except Exception:  # whatever the bytes look like to numpy and zipfile
            file = None
        if not isinstance(file, np.lib.npyio.NpzFile):  # one array, perhaps
            raise DataError(f"{path} is not an .npz file; write it with numpy.savez")
        with file:
            yield file


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


SOURCE = Npz()
