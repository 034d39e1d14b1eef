"""A data set without its images: enough to build the tasks of a run, compile and time them."""

from dataclasses import dataclass

import numpy as np
from ml_collections import ConfigDict

from istanas_jax.data.dataset import Dataset, load_dataset
from istanas_jax.data.preparation import Preparation
from istanas_jax.data.sources import known_size


@dataclass(frozen=True)
class Outline:
    """The number and shape of images, without the images."""

    num: int
    image_shape: tuple[int, int, int]

    def __len__(self) -> int:
        return self.num

    def take(self, indices: np.ndarray) -> "Outline":
        return Outline(len(indices), self.image_shape)


def outline(config: ConfigDict) -> Dataset:
    """The data set that a config names, or only its sizes if they are known without reading it."""
    sizes = (config.classes, config.image_size, config.image_channels)
    num = known_size(config.name)
    if num is None or not all((*sizes, *config.mean, *config.std)):
        return load_dataset(config)
    shape = (config.image_size, config.image_size, config.image_channels)
    images = Outline(num, shape)
    names = tuple(map(str, range(config.classes)))
    mean, std = (np.asarray(x, np.float32) for x in (config.mean, config.std))
    how = Preparation(config.image_size, config.image_channels, config.get("resize", 0))
    return Dataset(config.name, images, names, mean, std, lambda: images, how)
