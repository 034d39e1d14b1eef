"""Small data sets, and the part of a config that names them."""

import numpy as np
from ml_collections import ConfigDict

from istanas_jax.data.contract import Found
from istanas_jax.data.dataset import Dataset, Split
from istanas_jax.data.streaming import open_images

RNG = np.random.default_rng(0)


def config(name, **changes):
    keys = {"dir": "", "classes": 0, "image_size": 0, "image_channels": 0, "test_fraction": 0.25}
    return ConfigDict({"name": str(name), "mean": (), "std": ()} | keys | changes)


def open_folder(folder, *, size, channels=0, **changes) -> Found:
    """The images of class folders, decoded as they are needed."""
    return open_images(config(folder, image_size=size, image_channels=channels, **changes))


def images(num, size=6, channels=1):
    return RNG.integers(0, 256, (num, size, size, channels), dtype=np.uint8)


def same_images(found: Split, written: np.ndarray, labels) -> bool:
    """Whether both hold the same pairs, in whatever order."""
    pairs = [
        sorted((image.tobytes(), int(label)) for image, label in zip(*part, strict=True))
        for part in ((found.images, found.labels), (written, labels))
    ]
    return pairs[0] == pairs[1]


def together(found: Dataset) -> Split:
    """Training and test images."""
    parts = found.train, found.test()
    return Split(*(np.concatenate([getattr(p, x) for p in parts]) for x in ("images", "labels")))
