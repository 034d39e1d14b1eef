"""Fingerprints: do test images fit the training images, and has any image changed since?

Images in memory are known by every byte. Images that have not been read yet, test images and
streamed ones, are known by their number, by names and sizes of files, and by labels.
"""

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from istanas_jax.data.contract import EncodedImages

Marks = dict[str, Any]  # JSON-able; two sets with equal marks are taken for the same
AT_ONCE = 1024  # records whose labels are read together


@dataclass(frozen=True)
class TestFacts:
    """What is known of test images that have not been read."""

    num: int
    image_shape: tuple[int, int, int]
    labels: np.ndarray  # of all images, or of some if all of them would take long to read
    marks: Marks

    def __len__(self) -> int:
        return self.num


def gather_facts(
    images: EncodedImages, image_shape: tuple[int, int, int], *, all_labels=True
) -> TestFacts:
    """Gather the facts about test images that will get this shape when they are read."""
    num = len(images)
    numbers = range(num) if all_labels else sorted({0, num - 1})
    labels = read_labels(images, numbers) if num else np.zeros(0, np.int32)
    marks = _shape_marks(num, image_shape) | {"labels": checksum(labels)} | images.marks()
    return TestFacts(num, image_shape, labels, marks)


def read_labels(images: EncodedImages, numbers: Sequence[int]) -> np.ndarray:
    """Return labels, reading the images without decoding them where labels are not known."""
    if images.labels is not None:
        return images.labels[numbers]
    pieces = (numbers[start : start + AT_ONCE] for start in range(0, len(numbers), AT_ONCE))
    return np.array([label for piece in pieces for _, label in images.read(piece)], np.int64)


def marks_of(images) -> Marks:
    """What `dataset.Images` are known by."""
    marks = _shape_marks(len(images), images.image_shape)
    if hasattr(images, "source"):
        return marks | {"chosen": checksum(images.numbers)} | images.source.marks()
    return marks | {"labels": checksum(images.labels), "content": checksum(images.images)}


def checksum(x: np.ndarray | bytes) -> str:
    """CRC-32 as 8 hexadecimal digits."""
    if isinstance(x, np.ndarray):
        x = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    return f"{zlib.crc32(x):08x}"


def file_sizes(files: Sequence[str]) -> str:
    """Checksum of the sizes of files; a file that is not there counts as -1."""
    sizes = [os.stat(file).st_size if os.path.exists(file) else -1 for file in files]
    return checksum(np.array(sizes, np.int64))


def _shape_marks(num: int, image_shape: tuple[int, int, int]) -> Marks:
    return {"images": num, "shape": list(image_shape)}
