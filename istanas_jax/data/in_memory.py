"""Images as arrays in memory, and how encoded images become such arrays."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from istanas_jax.data.contract import Encoded, EncodedImages, Found
from istanas_jax.data.errors import DataError
from istanas_jax.data.fingerprints import gather_facts
from istanas_jax.data.preparation import Preparation

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


def decode_all(opened: Encoded, size: int, channels: int) -> Found:
    """Decode the training images now, and the test images when they are asked for.

    All get the given size and channels, or for 0 those that `choose_shape` finds.
    """
    how = Preparation(*choose_shape(opened, size, channels))
    train = _decode(opened.train, how)
    if opened.open_test is None:
        return Found(train, opened.class_names, None, how)
    return Found(
        train,
        opened.class_names,
        lambda: _decode(opened.open_test(), how),
        how,
        lambda: gather_facts(opened.open_test(), how.shape),
    )


def choose_shape(opened: Encoded, size: int, channels: int) -> tuple[int, int]:
    """Size and channels that images are decoded to; 0 stands for those that the data has."""
    if opened.image_shape is None:
        if not (size and channels):
            side, colours = usual_shape(opened.train)
            size, channels = size or side, channels or colours
        if channels not in (1, 3):
            raise DataError(
                f"{opened.name}: image_channels must be 0, 1 or 3 for images, not {channels}"
            )
        return size, channels
    height, width, channels = opened.image_shape
    if not size and (height is None or height != width):
        raise DataError(
            f"{opened.name}: images are not square or differ in size; give --config.data.image_size"
        )
    return size or height, channels


def usual_shape(images: EncodedImages) -> tuple[int, int]:
    """Medians of shorter side and channels over some images, so that an odd one decides nothing."""
    from istanas_jax.data import decoding  # here: cv2 takes long to import

    num = len(images)
    numbers = sorted({i * num // LOOKED_AT for i in range(LOOKED_AT)})
    read = zip(numbers, images.read(numbers), strict=True)
    shapes = [decoding.decode(encoded, 0, 0, images.name_of(i)).shape for i, (encoded, _) in read]
    sides = sorted(min(height, width) for height, width, _ in shapes)
    channels = sorted(channels for _, _, channels in shapes)
    return sides[len(sides) // 2], channels[len(channels) // 2]


def _decode(images: EncodedImages, how: Preparation) -> Split:
    num = len(images)
    split = _empty(num, how.size, how.channels, images.name)

    def decode_some(start: int) -> None:
        numbers = range(start, min(start + AT_ONCE, num))
        for i, (encoded, label) in zip(numbers, images.read(numbers), strict=True):
            split.images[i] = how(encoded, images.name_of(i))
            split.labels[i] = label

    _in_threads(decode_some, range(0, num, AT_ONCE))
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
