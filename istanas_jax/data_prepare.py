"""Encoded images, in folders or prepared by TensorFlow Datasets (TFDS), to arrays in memory.

The only file that imports cv2 and tensorflow_datasets, and it does so where they are needed.
TensorFlow is not: records are parsed with the message type that TFDS brings along.
"""

import contextlib
import difflib
import glob
import importlib.resources.abc
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np

MAX_BYTES = 8 * 2**30  # of decoded images
SUFFIXES = {".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
TEST_NAMES = ("test", "val", "validation")  # the first that is there
RECORDS = 1024  # read at a time


class DataError(ValueError):
    """Data that cannot be used, said in one sentence that tells what to do."""


class Split(NamedTuple):
    images: np.ndarray  # uint8 (N, H, W, C)
    labels: np.ndarray  # int32 (N,)

    def take(self, indices: np.ndarray) -> "Split":
        return Split(self.images[indices], self.labels[indices])


class Found(NamedTuple):
    """What a reader gives."""

    train: Split
    class_names: Sequence[str]
    read_test: Callable[[], Split] | None  # None: the data has no test images of its own


def read_folder(folder: Path, size: int, channels: int) -> Found:
    """Images of class folders in `folder`, or in its train and test folders.

    All get the given size and channels (1 or 3), or for 0 the first one's shorter side and colours.
    """
    root = folder / "train" if (folder / "train").is_dir() else folder
    names = _class_folders(root)
    files = _image_files(root, names)
    if not (size and channels):
        first = decode(files[0][0].read_bytes(), 0, 0, files[0][0])
        size = size or min(first.shape[:2])
        channels = channels or first.shape[2]
    if channels not in (1, 3):
        raise DataError(f"{folder}: image_channels must be 0, 1 or 3 for images, not {channels}")
    tests = [folder / name for name in TEST_NAMES if root != folder and (folder / name).is_dir()]
    if not tests:
        return Found(_read_files(files, size, channels, folder), names, None)
    unknown = set(_class_folders(tests[0])) - set(names)
    if unknown:
        raise DataError(f"{tests[0] / min(unknown)} is not a class of {root}; remove either")
    read_test = partial(_read_files, _image_files(tests[0], names), size, channels, folder)
    return Found(_read_files(files, size, channels, folder), names, read_test)


def _class_folders(root: Path) -> list[str]:
    names = sorted(p.name for p in root.glob("[!.]*") if p.is_dir())
    if not names:
        raise DataError(f"{root} has no class folders: put the images of each class in one")
    return names


def _image_files(root: Path, names: list[str]) -> list[tuple[Path, int]]:
    """Paths and labels; hidden files and those that are no images are passed over."""
    files = []
    for label, name in enumerate(names):
        if (root / name).is_dir():  # a class may be missing among the test images
            paths = sorted(p for p in (root / name).glob("[!.]*") if p.suffix.lower() in SUFFIXES)
            if not paths:
                raise DataError(f"class folder {root / name} has no images: add some or remove it")
            files += [(path, label) for path in paths]
    return files


def _read_files(files: list[tuple[Path, int]], size: int, channels: int, folder: Path) -> Split:
    split = _empty(len(files), size, channels, str(folder))

    def read(i: int) -> None:
        path, split.labels[i] = files[i]
        split.images[i] = decode(path.read_bytes(), size, channels, path)

    _in_threads(read, range(len(files)))
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


def decode(encoded: bytes, size: int, channels: int, what: object) -> np.ndarray:
    """Decode to (size, size, channels); size 0 keeps the image's, channels 0 its colours."""
    import cv2

    flags = {0: cv2.IMREAD_UNCHANGED, 1: cv2.IMREAD_GRAYSCALE, 3: cv2.IMREAD_COLOR_RGB}[channels]
    try:
        image = cv2.imdecode(np.frombuffer(encoded, np.uint8), flags)
    except cv2.error:  # an empty file
        image = None
    if image is None:
        raise DataError(f"{what} cannot be read as an image; repair or remove it")
    if size and image.shape[:2] != (size, size):
        image = cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA)
    if image.ndim == 2:
        image = image[..., None]
    return image if channels or image.shape[2] == 1 else image[..., :3]


def read_tfds(name: str, folder: str, size: int) -> Found:
    """The images of a TFDS set that lies prepared in `folder` ("" is TFDS's own default)."""
    builder = _prepared_builder(name, folder)
    splits = builder.info.splits
    if not splits:
        raise DataError(
            f"{name} is not prepared in {builder.data_path}; prepare it with "
            f"{_prepare_command(name, folder)}, or give the folder that has it as --config.data.dir"
        )
    if "train" not in splits:
        raise DataError(f"{name} has no train split, only: {', '.join(splits)}; use another set")
    image_key, label_key = _supervised_keys(builder.info, name)
    height, width, channels = builder.info.features[image_key].shape
    if channels not in (1, 3) or builder.info.features[image_key].np_dtype != np.uint8:
        raise DataError(f"{name}: images must have 1 or 3 channels of 8 bits; use another set")
    if not size and (height is None or height != width):
        raise DataError(
            f"{name}: images are not square or differ in size; give --config.data.image_size"
        )

    def read(split: str) -> Split:
        return _read_records(builder, split, size or height, channels, (image_key, label_key))

    test = next((split for split in TEST_NAMES if split in splits), None)
    read_test = (lambda: read(test)) if test else None
    return Found(read("train"), builder.info.features[label_key].names, read_test)


def _read_records(builder, name: str, size: int, channels: int, keys: tuple[str, str]) -> Split:
    """Decode a split; parsing only two features is ten times as fast as TFDS's own decoding."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.proto import tf_example_pb2

    image_key, label_key = keys
    num = builder.info.splits[name].num_examples
    split = _empty(num, size, channels, builder.name)
    source = builder.as_data_source(
        split=name, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES
    )

    def read(start: int) -> None:
        indices = list(range(start, min(start + RECORDS, num)))
        for i, record in zip(indices, source.__getitems__(indices), strict=True):
            feature = tf_example_pb2.Example.FromString(record).features.feature
            encoded = feature[image_key].bytes_list.value[0]
            split.images[i] = decode(encoded, size, channels, f"{builder.name} {name} {i}")
            split.labels[i] = feature[label_key].int64_list.value[0]

    _in_threads(read, range(0, num, RECORDS))
    return split


def _supervised_keys(info, name: str) -> list[str]:
    """Names of the image and the label feature: the declared, the usual or the only ones."""
    import tensorflow_datasets as tfds

    found = []
    for place, kind in enumerate((tfds.features.Image, tfds.features.ClassLabel)):
        keys = [key for key, feature in info.features.items() if type(feature) is kind]
        declared = info.supervised_keys[place] if info.supervised_keys else None
        wanted = [key for key in (declared, ("image", "label")[place]) if key in keys]
        if not wanted and len(keys) != 1:
            raise DataError(
                f"{name} is not a set of images with one label each, its features are: "
                f"{', '.join(info.features)}; use another set"
            )
        found.append((wanted or keys)[0])
    return found


def _prepared_builder(name: str, folder: str, **options):
    """TFDS's builder of a set, which may or may not be prepared; not one it cannot read."""
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=folder or None, **options)
    except Exception as error:  # TFDS raises what its hundreds of builders raise
        if not (isinstance(error, tfds.core.DatasetNotFoundError) or "Parsing" in str(error)):
            raise DataError(f"TFDS cannot open {name!r}: {_sentence(error)}") from error
        near = difflib.get_close_matches(name, tfds.list_builders(with_community_datasets=False))
        near = f" (near names: {', '.join(near)})" if near else ""
        raise DataError(
            f"there is no data {name!r}: give a TFDS name{near}, the path of a folder of class "
            "folders or of an .npz file, or digits"
        ) from None
    formats = {file_format.value for file_format in builder.info.available_file_formats()}
    if builder.info.splits and "array_record" not in formats:
        raise DataError(
            f"{name} in {builder.data_path} is stored as {', '.join(sorted(formats))}, not as "
            f"array_record; prepare it in another folder with {_prepare_command(name, 'DIR')}"
        )
    return builder


def _prepare_command(name: str, folder: str) -> str:
    return f"`python -m istanas_jax prepare {name}" + (f" --dir {folder}`" if folder else "`")


def _sentence(error: Exception) -> str:
    """The message on one line; of a long one, such as a dump of the example, the end."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 500 else str(error).strip().splitlines()[-1][-500:]


def prepare(name: str, folder: str = "") -> str:
    """Download a TFDS set and store it as array_record; returns where it lies.

    Nothing is done when it is there already. Some sets, such as imagenet2012, must be downloaded
    by hand first: the error says where to.
    """
    import requests

    builder = _prepared_builder(name, folder)
    if builder.info.splits:
        return str(builder.data_path)
    with _stand_ins():
        builder = _prepared_builder(name, folder, file_format="array_record")
        try:
            builder.download_and_prepare()
        except Exception as error:  # as above
            why = _sentence(error)
            if isinstance(error, requests.exceptions.ConnectionError):
                url = error.request.url if error.request else "its server"
                why = f"no connection to {url}; do it where there is one and copy the folder"
            elif "tensorflow" in why and isinstance(error, (ImportError, AttributeError)):
                why = f"this set needs TensorFlow for it, install that first ({why})"
            raise DataError(f"{name} cannot be prepared: {why}") from error
    return str(builder.data_path)


@contextlib.contextmanager
def _stand_ins() -> Iterator[None]:
    """What TFDS needs for preparing, but does not install: all in terms of what is here.

    Its builders open files through TensorFlow and store arrays (cifar10, mnist) as PNG with it;
    it asks for importlib_resources, which Python has under another name.
    """
    import cv2

    bgr = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}  # the order in which cv2 writes

    def encode(suffix: str, image: np.ndarray) -> SimpleNamespace:
        encoded = cv2.imencode(suffix, image[..., bgr[image.shape[2]]])[1].tobytes()
        return SimpleNamespace(numpy=lambda: encoded)

    tensorflow = ModuleType("tensorflow")
    tensorflow.__version__ = "2.99.0"  # TFDS asks for 2.1 or later
    tensorflow.executing_eagerly = lambda: True
    tensorflow.Tensor = type("Tensor", (), {})  # for isinstance
    tensorflow.image = SimpleNamespace(
        encode_png=partial(encode, ".png"), encode_jpeg=partial(encode, ".jpg")
    )
    gfile = {"GFile": open, "exists": os.path.exists, "glob": glob.glob, "listdir": os.listdir}
    tensorflow.io = SimpleNamespace(gfile=SimpleNamespace(**gfile, walk=os.walk))
    modules = {"tensorflow": tensorflow, "importlib_resources": importlib.resources}
    added = {name: m for name, m in modules.items() if importlib.util.find_spec(name) is None}
    sys.modules.update(added)
    try:
        yield
    finally:
        for module in added:
            del sys.modules[module]
