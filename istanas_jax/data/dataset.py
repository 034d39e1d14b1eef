"""Labelled images, and the order in which they are seen.

The kinds of data are the files of `sources/`. Images are decoded once to uint8 or, where they are
too large for memory (`data.stream`), as they are needed. Batches are index arrays, each a function
of (seed, epoch, stream), so that a resumed run sees exactly the images it would have seen.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from ml_collections import ConfigDict

from istanas_jax.data import in_memory, streaming
from istanas_jax.data.contract import Encoded
from istanas_jax.data.errors import DataError
from istanas_jax.data.fingerprints import Marks, TestFacts, checksum, marks_of
from istanas_jax.data.in_memory import Split
from istanas_jax.data.preparation import Preparation
from istanas_jax.data.sources import open_source

# First word of every seed: keeps the draws for different purposes apart.
TEST, DIVIDE, ORDER = range(3)
SMALLEST = 4  # pixels: the two reduction cells of a network leave one of them


class Images(Protocol):
    """Labelled images, in memory (`Split`) or decoded as they are needed (`StreamedImages`)."""

    @property
    def image_shape(self) -> tuple[int, int, int]: ...

    def __len__(self) -> int: ...

    def take(self, indices: np.ndarray) -> "Images":
        """These images, in this order."""

    def read_labels(self) -> np.ndarray:
        """Labels of all images."""

    def batches(
        self, order: Iterable[np.ndarray], *, seed: tuple[int, ...] | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield images and labels of each array of indices; seed None prepares them for a test."""


@dataclass(frozen=True)
class Dataset:
    name: str
    train: Images
    class_names: tuple[str, ...]
    mean: np.ndarray  # float32 (C,), of pixels / 255
    std: np.ndarray  # float32 (C,)
    read_test: Callable[[], Images]
    preparation: Preparation  # makes of an image file what evaluation makes of test images
    test_marks: Marks = field(default_factory=dict)  # what test images are known by

    def test(self) -> Images:
        """Read the test images, which a run does once, at its end."""
        test = self.read_test()
        self.check_test(test)
        return test

    def check_test(self, test: Images | TestFacts) -> None:
        """Raise if these test images cannot be those of this set."""
        _checked(test, f"{self.name} (test)")
        if test.image_shape != self.train.image_shape:
            raise DataError(
                f"{self.name}: test images are {_shape(test)}, training images "
                f"{_shape(self.train)}; make them equal"
            )
        labels = getattr(test, "labels", np.zeros(1))  # streamed images have none at hand
        if labels.max() >= self.classes:
            raise DataError(
                f"{self.name}: a test image has label {labels.max()}, but the training labels end "
                f"at {self.classes - 1}"
            )

    @cached_property
    def marks(self) -> Marks:
        """What the whole set is recognised by when a run is resumed."""
        return {
            "classes": self.classes,
            "class_names": checksum("\n".join(self.class_names).encode()),
            "train": marks_of(self.train),
            "test": self.test_marks,
        }

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def image_size(self) -> int:
        return self.train.image_shape[0]

    @property
    def image_channels(self) -> int:
        return self.train.image_shape[2]


def load_dataset(config: ConfigDict) -> Dataset:
    """Read the training images that a config's `data` block names, and check them against it.

    0 for classes, image_size or image_channels takes what the data has; empty mean and std are
    computed. Data without a test part gives `test_fraction` of each class to it, the same images in
    every run.
    """
    if config.get("stream"):
        found = streaming.open_images(config)
    else:
        found = open_source(config)
        if isinstance(found, Encoded):
            found = in_memory.decode_all(found, config.image_size, config.image_channels)
    train = _checked(found.train, config.name)
    if len(found.class_names) < 2:
        raise DataError(
            f"{config.name} has one class only, {found.class_names[0]!r}; there must be two or more"
        )
    for key, value in (
        ("classes", len(found.class_names)),
        ("image_size", train.image_shape[0]),
        ("image_channels", train.image_shape[2]),
    ):
        if config[key] not in (0, value):
            raise DataError(
                f"{config.name} has {key} {value}, but the config says {config[key]}; "
                f"give --config.data.{key}={value}, or 0 to take what the data has"
            )
    read_test, look_at_test = found.read_test, found.look_at_test
    if read_test is None:
        rest, chosen = _choose_test(train.read_labels(), config.test_fraction, config.name)
        test, train = train.take(chosen), train.take(rest)
        read_test = lambda: test  # noqa: E731
    mean, std = _statistics(train, config)
    names = tuple(found.class_names)
    dataset = Dataset(config.name, train, names, mean, std, read_test, found.preparation)
    if look_at_test is None:
        return replace(dataset, test_marks=marks_of(read_test()))
    facts = look_at_test()
    dataset.check_test(facts)
    return replace(dataset, test_marks=facts.marks)


def _checked(split: Images | TestFacts, name: str) -> Images:
    if not len(split):
        raise DataError(f"{name} has no images")
    height, width, _ = split.image_shape
    if height != width:
        raise DataError(f"{name}: images must be square, these are {_shape(split)}; resize them")
    if height < SMALLEST:
        raise DataError(
            f"{name}: images of {height} x {width} pixels are too small, they must have at least "
            f"{SMALLEST} x {SMALLEST}"
        )
    # Labels that are streamed would have to be read from end to end; they are the class's number.
    if (least := getattr(split, "labels", np.zeros(1)).min()) < 0:
        raise DataError(f"{name}: an image has label {least}; labels count from 0")
    return split


def _shape(split: Images | TestFacts) -> str:
    return " x ".join(map(str, split.image_shape))


def _choose_test(labels: np.ndarray, fraction: float, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the test images: a fixed choice, the same share per class."""
    if not 0 < fraction < 1:
        raise DataError(
            f"{name} has no test images of its own: give the fraction of its images to keep for "
            f"testing, --config.data.test_fraction=0.2 or another between 0 and 1, not {fraction}"
        )
    is_test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        shuffled = np.random.default_rng([TEST, int(label)]).permutation(members)
        is_test[shuffled[: min(round(len(members) * fraction), len(members) - 1)]] = True
    if not is_test.any():
        raise DataError(
            f"{name}: its classes are too small to give {fraction} of them to the test images; "
            "give a larger --config.data.test_fraction or more images"
        )
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def _statistics(images: Images, config: ConfigDict) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation per channel, from the config or exactly from all pixels."""
    channels = images.image_shape[2]
    for key in ("mean", "std"):
        if len(config[key]) not in (0, channels):
            raise DataError(
                f"--config.data.{key} has {len(config[key])} values for {channels} channels; "
                "give one per channel, or () to compute them"
            )
    mean, std = (np.asarray(config[key], np.float64) for key in ("mean", "std"))
    if not (mean.size and std.size):
        if not isinstance(images, Split):
            raise DataError(
                f"{config.name}: images that are streamed need --config.data.mean and "
                "--config.data.std, one value per channel; the customary ones are those of "
                "configs/imagenet_retrain.py"
            )
        counts = np.zeros((channels, 256), np.int64)
        for start in range(0, len(images), 1024):  # bincount makes 8 bytes of each pixel
            for channel in range(channels):
                pixels = images.images[start : start + 1024, ..., channel]
                counts[channel] += np.bincount(pixels.ravel(), minlength=256)
        share = counts / counts.sum(1, keepdims=True)
        values = np.arange(256) / 255
        found = share @ values
        mean = mean if mean.size else found
        std = std if std.size else np.sqrt((share * (values - found[:, None]) ** 2).sum(1))
    if not (std > 0).all():
        raise DataError(f"{config.name}: std is {std.tolist()}, it must be above 0 in each channel")
    return mean.astype(np.float32), std.astype(np.float32)


def divide(num: int, fraction: float, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two disjoint parts of range(num), each in rising order; the first has this fraction."""
    shuffled = np.random.default_rng([DIVIDE, seed]).permutation(num)
    first = round(num * fraction)
    return np.sort(shuffled[:first]), np.sort(shuffled[first:])


def order(num: int, *, seed: int, epoch: int, stream: int) -> np.ndarray:
    """The order in which an epoch sees range(num); `stream` tells batches of W and of b apart."""
    return np.random.default_rng([ORDER, seed, epoch, stream]).permutation(num)


def batch_indices(
    num: int, batch: int, *, seed: int, epoch: int, stream: int, first: int = 0
) -> Iterator[np.ndarray]:
    """Indices of an epoch's full batches, from batch number `first` on; the rest is left out."""
    if num < batch:
        raise DataError(f"{num} images do not fill a batch of {batch}; give a smaller batch")
    shuffled = order(num, seed=seed, epoch=epoch, stream=stream)
    return (shuffled[i * batch : (i + 1) * batch] for i in range(first, num // batch))


def padded_indices(num: int, batch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices and weights: all of range(num) once with weight 1, the last batch filled with 0."""
    for start in range(0, num, batch):
        indices = np.arange(start, start + batch)
        inside = indices < num
        yield np.where(inside, indices, 0), inside.astype(np.float32)
