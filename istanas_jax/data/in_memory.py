"""Encoded images, in folders or prepared by TensorFlow Datasets (TFDS), to arrays in memory."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from istanas_jax.data.errors import DataError
from istanas_jax.data.fingerprints import look_at
from istanas_jax.data.preparation import Preparation
from istanas_jax.data.sources import Found, Source, find_files, find_records

MAX_BYTES = 8 * 2**30  # of decoded images
AT_ONCE = 128  # images that a thread reads and decodes
LOOKED_AT = 101  # images, spread over the set, that tell its usual size and colours


@dataclass(frozen=True)
class Split:
    """Images in memory."""

    images: np.ndarray  # uint8 (N, H, W, C)
    labels: np.ndarray  # int32 (N,)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.images.shape[1:]

    def take(self, indices: np.ndarray) -> "Split":
        """These images, in this order."""
        return Split(self.images[indices], self.labels[indices])

    def read_labels(self) -> np.ndarray:
        return self.labels

    def batches(
        self, order: Iterable[np.ndarray], *, seed: tuple[int, ...] | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The images and labels of each array of indices; `seed` is for those that are cropped."""
        for indices in order:
            yield self.images[indices], self.labels[indices]


def read_folder(folder: Path, size: int, channels: int) -> Found:
    """Images of class folders in `folder`, or in its train and test folders.

    All get the given size and channels (1 or 3), or for 0 those of the usual image.
    """
    names, train, test = find_files(folder)
    if not (size and channels):
        side, colours = usual_shape(train)
        size, channels = size or side, channels or colours
    check_channels(channels, folder)
    how = Preparation(size, channels)
    if test is None:
        return Found(_read(train, how), names, None, how)
    look = partial(look_at, test, (size, size, channels))
    return Found(_read(train, how), names, partial(_read, test, how), how, look)


def usual_shape(source: Source) -> tuple[int, int]:
    """Medians of shorter side and channels over some images, so that an odd one decides nothing."""
    from istanas_jax.data import decoding  # here: cv2 takes long to import

    num = len(source)
    numbers = sorted({i * num // LOOKED_AT for i in range(LOOKED_AT)})
    read = zip(numbers, source.read(numbers), strict=True)
    shapes = [decoding.decode(encoded, 0, 0, source.name_of(i)).shape for i, (encoded, _) in read]
    sides = sorted(min(height, width) for height, width, _ in shapes)
    channels = sorted(channels for _, _, channels in shapes)
    return sides[len(sides) // 2], channels[len(channels) // 2]


def check_channels(channels: int, folder: Path) -> None:
    if channels not in (1, 3):
        raise DataError(f"{folder}: image_channels must be 0, 1 or 3 for images, not {channels}")


def _read(source: Source, how: Preparation) -> Split:
    """All of it."""
    num = len(source)
    split = _empty(num, how.size, how.channels, source.name)

    def read(start: int) -> None:
        numbers = range(start, min(start + AT_ONCE, num))
        for i, (encoded, label) in zip(numbers, source.read(numbers), strict=True):
            split.images[i] = how(encoded, source.name_of(i))
            split.labels[i] = label

    _in_threads(read, range(0, num, AT_ONCE))
    return split


def _empty(num: int, size: int, channels: int, name: str) -> Split:
    needed = num * size * size * channels
    if needed > MAX_BYTES:
        raise DataError(
            f"{name}: {num} images of {size} x {size} x {channels} take {needed / 2**30:.0f} GiB "
            f"and would not fit in memory (limit {MAX_BYTES / 2**30:.0f} GiB); "
            "give a smaller --config.data.image_size or fewer images"
        )
    return Split(np.empty((num, size, size, channels), np.uint8), np.empty(num, np.int32))


def _in_threads(function: Callable[[int], None], items: range) -> None:
    with ThreadPoolExecutor() as pool:  # cv2 decodes without holding Python's lock
        for _ in pool.map(function, items):
            pass


def read_tfds(name: str, folder: str, size: int) -> Found:
    """The images of a TFDS set that lies prepared in `folder` ("" is TFDS's own default)."""
    found = find_records(name, folder)
    height, width, channels = found.image_shape
    if not size and (height is None or height != width):
        raise DataError(
            f"{name}: images are not square or differ in size; give --config.data.image_size"
        )
    size = size or height
    how = Preparation(size, channels)
    train, classes = _read(found.train, how), found.class_names
    if found.test is None:
        return Found(train, classes, None, how)
    look = lambda: look_at(found.test(), (size, size, channels))  # noqa: E731
    return Found(train, classes, lambda: _read(found.test(), how), how, look)
