"""What a data source promises, and the records in which it hands over its images.

A source is one file of `sources/`. It either reads its images into memory (`Found`) or opens them
as files or records that are decoded later (`Encoded`): `in_memory` decodes all of those at once,
`streaming` decodes them as they are needed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
from ml_collections import ConfigDict

from istanas_jax.data.errors import DataError
from istanas_jax.data.preparation import Preparation

TEST_NAMES = ("test", "val", "validation")  # folders or splits of test images; the first there is


class Found(NamedTuple):
    """Images that are ready for use, in memory or decoded as they are needed."""

    train: Any  # `dataset.Images`
    class_names: Sequence[str]
    read_test: Callable[[], Any] | None  # None: the data has no test images of its own
    preparation: Preparation  # what evaluation does to an image file; arrays stay as they are
    look_at_test: Callable[[], Any] | None = None  # `fingerprints.TestFacts`, without reading all


class EncodedImages(Protocol):
    """Encoded images by number. It can be sent to another process."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> np.ndarray | None:
        """Labels of all images, or None if they are only known by reading them."""

    def __len__(self) -> int: ...

    def name_of(self, number: int) -> str:
        """What error messages call an image."""

    def read(self, numbers: Sequence[int]) -> Iterator[tuple[bytes, int]]:
        """Yield each image with its label."""

    def marks(self) -> dict[str, Any]:
        """Values, fit for JSON, that change if the images do."""


class Encoded(NamedTuple):
    """Images that are still to be decoded."""

    name: str
    train: EncodedImages
    class_names: Sequence[str]
    open_test: Callable[[], EncodedImages] | None  # None: the data has no test images of its own
    # Height, width (None: they differ) and channels; None if only the images themselves tell.
    image_shape: tuple[int | None, int | None, int] | None = None


class Claim(IntEnum):
    """How a source recognises a name. Sources are asked in this order."""

    NAME = 0  # it is a fixed word
    SUFFIX = 1  # it ends in a certain way
    PATH = 2  # it is a place on the disk
    ANY = 3  # nobody else wanted it


class UnknownName(Exception):
    """Raised by a source that was asked last and has no images of this name."""


class DataSource(ABC):
    """One kind of data. Its file in `sources/` ends with `SOURCE = ` an object of a subclass."""

    claim: Claim
    can_stream: bool  # True: `open` gives `Encoded`; False: it gives `Found`
    sizes: Mapping[str, int] = {}  # training images of the sets whose number is known beforehand

    @abstractmethod
    def means(self, name: str) -> bool:
        """Whether this name, in which ~ is expanded, means this source."""

    @abstractmethod
    def offer(self, name: str) -> str:
        """What to try in place of a name that nobody knows, as "an .npz"."""

    @abstractmethod
    def open(self, name: str, config: ConfigDict) -> Found | Encoded:
        """The images; `config` is the `data` block, should the source need more of it."""

    def prepare(self, name: str, folder: str) -> str:
        """Download and convert the data; returns where it lies."""
        raise DataError(f"{name} need not be prepared: its images are read as they are")
