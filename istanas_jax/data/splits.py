"""Which images a config uses for what: W, b, and those held out."""

import jax
import numpy as np
from ml_collections import ConfigDict

from istanas_jax.data.dataset import Dataset, Images, divide

LAST_STEP = 2**31 - 1  # steps are 32-bit numbers


def hold_out(config: ConfigDict, dataset: Dataset) -> tuple[Images, Images | None]:
    """Training images, and those held out (None if the config wants none).

    Both are the same for every run of a config, so that runs can be compared.
    """
    kept, held = _kept_and_held(config, dataset)
    return dataset.train.take(kept), dataset.train.take(held) if len(held) else None


def divide_training(config: ConfigDict, dataset: Dataset) -> tuple[Images, Images, Images | None]:
    """Images for W, for b, and held out, all disjoint."""
    kept, held = _kept_and_held(config, dataset)
    w, b = divide(len(kept), config.search.weights_fraction, seed=_seed(config))
    train = dataset.train
    return train.take(kept[w]), train.take(kept[b]), train.take(held) if len(held) else None


def _kept_and_held(config: ConfigDict, dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training images to use and of those held out."""
    some, seed = np.arange(len(dataset.train)), _seed(config)
    if 0 < config.data.max_images < len(some):
        some, _ = divide(len(some), config.data.max_images / len(some), seed=seed)
    kept, held = divide(len(some), 1 - config.data.holdout_fraction, seed=seed)
    return some[kept], some[held]


def _seed(config: ConfigDict) -> int:
    """The seed of the division: the run's own, unless runs of several seeds share a division."""
    return config.data.get("division_seed", config.seed)


def check_batches(config: ConfigDict, dataset: Dataset) -> None:
    """Raise, before any work is done, if a phase cannot use these images."""
    if config.data.pad >= dataset.image_size:
        raise ValueError(
            f"data.pad is {config.data.pad}, it must be below the images' {dataset.image_size} "
            "pixels: a crop could miss the image"
        )
    shrink = config.search.get("shrink", 1) if "search" in config else 1
    if dataset.image_size % shrink:
        raise ValueError(
            f"search.shrink is {shrink}, it must divide the images' {dataset.image_size} pixels"
        )
    kept, _ = _kept_and_held(config, dataset)
    sizes = {phase: {"for training": len(kept)} for phase in ("search", "train")}
    if config.schedule == "two_stage":
        w, b = divide(len(kept), config.search.weights_fraction, seed=_seed(config))
        sizes["search"] = {"for W": len(w), "for b": len(b)}
    for phase in sizes.keys() & set(config.keys()):
        for purpose, size in sizes[phase].items():
            if size < config[phase].batch:
                raise ValueError(
                    f"{phase}.batch is {config[phase].batch}, but there are {size} images {purpose}"
                )
            if size // config[phase].batch * config[phase].get("epochs", 1) >= LAST_STEP:
                raise ValueError(f"{phase}.epochs are {LAST_STEP:,} steps or more: take fewer")


def batch_shapes(images: Images, batch: int) -> list[jax.ShapeDtypeStruct]:
    """Shapes of a batch of these images and of its labels."""
    return [
        jax.ShapeDtypeStruct((batch, *images.image_shape), np.uint8),
        jax.ShapeDtypeStruct((batch,), np.int32),
    ]
