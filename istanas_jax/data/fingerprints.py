"""What images are known by: to tell at the start that test images fit, and later that none changed.

Of images in memory every byte counts. Of those that are not read yet, test images and streamed
ones, it is numbers, names and sizes of files, and labels.
"""

import os
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from istanas_jax.data.sources import Files, Source

Marks = dict[str, Any]  # JSON-able; two sets with equal marks are taken for the same
MEASURED = 10_000  # files of a set whose sizes are asked for, spread over it
AT_ONCE = 1024  # records whose labels are read together


@dataclass(frozen=True)
class TestFacts:
    """Of test images that have not been read."""

    num: int
    image_shape: tuple[int, int, int]
    labels: np.ndarray  # of all images or, of a streamed TFDS set, of some
    marks: Marks

    def __len__(self) -> int:
        return self.num


def look_at(source: Source, image_shape: tuple[int, int, int], *, all_labels=True) -> TestFacts:
    """Test images that will get this shape when they are read."""
    num = len(source)
    numbers = range(num) if all_labels else sorted({0, num - 1})
    labels = read_labels(source, numbers) if num else np.zeros(0, np.int32)
    marks = _shape_marks(num, image_shape) | {"labels": checksum(labels)} | _source_marks(source)
    return TestFacts(num, image_shape, labels, marks)


def read_labels(source: Source, numbers) -> np.ndarray:
    """A folder knows them; of a TFDS set records are read, and their images left as they are."""
    if isinstance(source, Files):
        return source.labels[numbers]
    pieces = (numbers[start : start + AT_ONCE] for start in range(0, len(numbers), AT_ONCE))
    return np.array([label for piece in pieces for _, label in source.read(piece)], np.int64)


def marks_of(images) -> Marks:
    """Of `data.Images`."""
    marks = _shape_marks(len(images), images.image_shape)
    if hasattr(images, "source"):
        return marks | {"chosen": checksum(images.numbers)} | _source_marks(images.source)
    return marks | {"labels": checksum(images.labels), "content": checksum(images.images)}


def checksum(x: np.ndarray | bytes) -> str:
    """As 8 hexadecimal digits."""
    if isinstance(x, np.ndarray):
        x = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    return f"{zlib.crc32(x):08x}"


def _shape_marks(num: int, image_shape: tuple[int, int, int]) -> Marks:
    return {"images": num, "shape": list(image_shape)}


def _source_marks(source: Source) -> Marks:
    """Not where the files are: a set may be moved."""
    if isinstance(source, Files):
        files = [source.name_of(i) for i in _spread(len(source))]
        known = {"names": checksum(source.names), "labels": checksum(source.labels)}
    else:
        files = getattr(source, "files", ())
        names = "\n".join(os.path.basename(file) for file in files)
        known = {"names": checksum(names.encode())}
    sizes = [os.stat(file).st_size if os.path.exists(file) else -1 for file in files]
    return known | {"sizes": checksum(np.array(sizes, np.int64))}


def _spread(num: int) -> list[int]:
    return sorted({i * num // min(num, MEASURED) for i in range(min(num, MEASURED))})
