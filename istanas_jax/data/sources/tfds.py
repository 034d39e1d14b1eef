"""Sets of TensorFlow Datasets (TFDS) that lie prepared as array_record.

This is the only file that imports tensorflow_datasets, and it does so where it is needed.
TensorFlow is not needed: records are parsed with the message type that TFDS brings along.
"""

import contextlib
import difflib
import glob
import importlib.resources.abc
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from ml_collections import ConfigDict

from istanas_jax.data.contract import TEST_NAMES, Claim, DataSource, Encoded, UnknownName
from istanas_jax.data.errors import DataError
from istanas_jax.data.fingerprints import Marks, checksum, file_sizes


class TensorFlowDatasets(DataSource):
    claim = Claim.ANY
    can_stream = True
    sizes: Mapping[str, int] = {"cifar10": 50_000, "cifar100": 50_000, "imagenet2012": 1_281_167}

    def means(self, name: str) -> bool:
        return True

    def offer(self, name: str) -> str:
        return f"a TFDS name{_near_names(name)}"

    def open(self, name: str, config: ConfigDict) -> Encoded:
        return find_records(name, os.path.expanduser(config.dir))

    def prepare(self, name: str, folder: str) -> str:
        return prepare(name, folder)


@dataclass(frozen=True)
class Records:
    """A split of a TFDS set."""

    name: str  # of set and split
    records: Any  # array_record's source of bytes
    keys: tuple[str, str]  # the features that hold image and label
    files: tuple[str, ...]  # that hold the records

    labels = None  # only the records tell

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Import TFDS in the new process now: threads that import it together wait forever."""
        _example()
        self.__dict__.update(state)

    def __len__(self) -> int:
        return len(self.records)

    def name_of(self, number: int) -> str:
        return f"{self.name} {number}"

    def read(self, numbers: Sequence[int]) -> Iterator[tuple[bytes, int]]:
        """Parsing only two features is ten times as fast as TFDS's own decoding."""
        image_key, label_key = self.keys
        try:
            records = self.records.__getitems__(numbers)
        except RuntimeError as error:  # array_record's
            raise DataError(f"{self.name}: {_sentence(error)}; prepare the set again") from None
        for record in records:
            feature = _example().FromString(record).features.feature
            image, label = feature[image_key].bytes_list, feature[label_key].int64_list
            yield image.value[0], label.value[0]

    def marks(self) -> Marks:
        """Names and sizes of files, but not where they are: a set may be moved."""
        names = "\n".join(os.path.basename(file) for file in self.files)
        return {"names": checksum(names.encode()), "sizes": file_sizes(self.files)}


@cache
def _example():
    """Protobuf's type of a record."""
    from tensorflow_datasets.proto import tf_example_pb2

    return tf_example_pb2.Example


def find_records(name: str, folder: str) -> Encoded:
    """The splits of a set that lies prepared in `folder` ("" is TFDS's own default)."""
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
    feature = builder.info.features[image_key]
    if feature.shape[2] not in (1, 3) or feature.np_dtype != np.uint8:
        raise DataError(f"{name}: images must have 1 or 3 channels of 8 bits; use another set")
    records = partial(_records, builder, keys=(image_key, label_key))
    tests = [split for split in TEST_NAMES if split in splits]
    return Encoded(
        name,
        records("train"),
        builder.info.features[label_key].names,
        partial(_labelled, [partial(records, test) for test in tests]) if tests else None,
        feature.shape,
    )


def _records(builder, split: str, keys: tuple[str, str]) -> Records:
    import tensorflow_datasets as tfds

    raw = tfds.decode.DeserializeMethod.RAW_BYTES
    records = builder.as_data_source(split=split, deserialize_method=raw).data_source
    files = tuple(map(os.fspath, builder.info.splits[split].filepaths))
    return Records(f"{builder.name} {split}", records, keys, files)


def _labelled(splits: list[Callable[[], Records]]) -> Records:
    """The first split whose first image has a label: imagenet2012's test images have -1."""
    for open_split in splits:
        records = open_split()
        if len(splits) == 1 or next(records.read([0]))[1] >= 0:
            return records
    return records


def _supervised_keys(info, name: str) -> list[str]:
    """Names of the image and the label feature: the declared, the usual or the only ones."""
    import tensorflow_datasets as tfds

    found = []
    for place, feature_type in enumerate((tfds.features.Image, tfds.features.ClassLabel)):
        keys = [key for key, feature in info.features.items() if type(feature) is feature_type]
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
    """TFDS's builder of a set, whether it is prepared or not, if this package can read it."""
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=folder or None, **options)
    except Exception as error:  # TFDS raises what its hundreds of builders raise
        if not (isinstance(error, tfds.core.DatasetNotFoundError) or "Parsing" in str(error)):
            raise DataError(f"TFDS cannot open {name!r}: {_sentence(error)}") from error
        raise UnknownName from None
    formats = {file_format.value for file_format in builder.info.available_file_formats()}
    if builder.info.splits and "array_record" not in formats:
        raise DataError(
            f"{name} in {builder.data_path} is stored as {', '.join(sorted(formats))}, not as "
            f"array_record; prepare it in another folder with {_prepare_command(name, 'DIR')}"
        )
    return builder


def _near_names(name: str) -> str:
    if not name:
        return ""
    import tensorflow_datasets as tfds

    near = difflib.get_close_matches(name, tfds.list_builders(with_community_datasets=False))
    return f" (near names: {', '.join(near)})" if near else ""


def _prepare_command(name: str, folder: str) -> str:
    return f"`python -m istanas_jax prepare {name}" + (f" --dir {folder}`" if folder else "`")


def _sentence(error: Exception) -> str:
    """The message on one line; only the end of a long one, such as a dump of the example."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 500 else str(error).strip().splitlines()[-1][-500:]


def prepare(name: str, folder: str) -> str:
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
    """Stand in for what TFDS needs to prepare a set but does not install.

    Its builders open files through TensorFlow, store arrays (cifar10, mnist) as PNG with it and
    convert a few images (imagenet2012) to plain JPEG; it asks for importlib_resources, which Python
    has under another name.
    """
    import cv2
    import tensorflow_datasets as tfds

    bgr = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}  # the order in which cv2 writes

    def encode(suffix: str, image: np.ndarray) -> SimpleNamespace:
        encoded = cv2.imencode(suffix, image[..., bgr[image.shape[2]]])[1].tobytes()
        return SimpleNamespace(numpy=lambda: encoded)

    def to_jpeg(encoded: bytes, quality: int = 100) -> bytes:
        image = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)
        return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()

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
        with mock.patch.multiple(tfds.core.utils, jpeg_cmyk_to_rgb=to_jpeg, png_to_jpeg=to_jpeg):
            yield
    finally:
        for module in added:
            del sys.modules[module]


SOURCE = TensorFlowDatasets()
