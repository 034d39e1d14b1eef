"""Image files in class folders: FOLDER/cat/1.jpg, or FOLDER/train/cat/1.jpg and FOLDER/test."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from istanas_jax.data.contract import TEST_NAMES, Claim, DataSource, Encoded
from istanas_jax.data.errors import DataError
from istanas_jax.data.fingerprints import Marks, checksum, file_sizes
from istanas_jax.storage.files import check_regular

SUFFIXES = {".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
MEASURED = 10_000  # files of a set whose sizes are asked for, spread over it


class Folder(DataSource):
    claim = Claim.PATH
    can_stream = True

    def means(self, name: str) -> bool:
        return os.path.isdir(name) or name.startswith((".", os.sep))

    def offer(self, name: str) -> str:
        return "a folder of class folders"

    def open(self, name: str, config: ConfigDict) -> Encoded:
        if not os.path.isdir(name):
            raise DataError(f"data folder {name} does not exist")
        folder = Path(name)
        names, train, test = find_files(folder)
        return Encoded(str(folder), train, names, None if test is None else lambda: test)


@dataclass(frozen=True)
class Files:
    """The images in the class folders of a folder."""

    root: Path
    # Paths from there, as bytes: a million strings would take long to send to a process.
    names: np.ndarray
    labels: np.ndarray

    @property
    def name(self) -> str:
        return str(self.root)

    def __len__(self) -> int:
        return len(self.names)

    def name_of(self, number: int) -> str:
        return os.path.join(self.root, os.fsdecode(self.names[number]))

    def read(self, numbers: Sequence[int]) -> Iterator[tuple[bytes, int]]:
        for number in numbers:
            yield read_image(self.name_of(number)), self.labels[number]

    def marks(self) -> Marks:
        """Names, labels and sizes of files, but not where they are: a folder may be moved."""
        num, most = len(self), min(len(self), MEASURED)
        files = [self.name_of(i) for i in sorted({i * num // most for i in range(most)})]
        known = {"names": checksum(self.names), "labels": checksum(self.labels)}
        return known | {"sizes": file_sizes(files)}


def read_image(path: str | os.PathLike) -> bytes:
    """The bytes of an image file."""
    try:
        check_regular(path)
        return Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None


def find_files(folder: Path) -> tuple[list[str], Files, Files | None]:
    """Class names, training images, and test images if the folder has some of its own."""
    root = folder / "train" if (folder / "train").is_dir() else folder
    names = _class_folders(root)
    train = _image_files(root, names)
    tests = [folder / name for name in TEST_NAMES if root != folder and (folder / name).is_dir()]
    if not tests:
        return names, train, None
    unknown = set(_class_folders(tests[0])) - set(names)
    if unknown:
        raise DataError(f"{tests[0] / min(unknown)} is not a class of {root}; remove either")
    return names, train, _image_files(tests[0], names)


def _class_folders(root: Path) -> list[str]:
    names = sorted(p.name for p in root.glob("[!.]*") if p.is_dir())
    if not names:
        raise DataError(f"{root} has no class folders: put the images of each class in one")
    return names


def _image_files(root: Path, class_names: list[str]) -> Files:
    """Hidden files and those that are no images are passed over."""
    names, labels = [], []
    for label, name in enumerate(class_names):
        if (root / name).is_dir():  # a class may be missing among the test images
            with os.scandir(root / name) as entries:
                images = sorted(filter(_is_image, entries), key=lambda entry: entry.name)
            if not images:
                raise DataError(f"class folder {root / name} has no images: add some or remove it")
            for entry in images:  # now, since streamed images are read in the middle of a run
                if not entry.is_file():
                    raise DataError(f"{entry.path} is not a regular file: remove it")
            names += [os.fsencode(f"{name}/{entry.name}") for entry in images]
            labels += [label] * len(images)
    return Files(root, np.array(names), np.array(labels, np.int32))


def _is_image(entry: os.DirEntry) -> bool:
    suffix = os.path.splitext(entry.name)[1].lower()
    return not entry.name.startswith(".") and suffix in SUFFIXES


SOURCE = Folder()
