"""A trained network in a run's folder: its variables and all that is needed to use it."""

import os
from typing import NamedTuple

import jax
from etils import epath

from istanas_jax.data.dataset import Dataset
from istanas_jax.data.preparation import Preparation
from istanas_jax.networks.target_net import TargetNet, init_target
from istanas_jax.runs.folder import TRAINED, Workdir
from istanas_jax.space.genotype import Genotype
from istanas_jax.storage.checkpoint_files import CheckpointError, read_about
from istanas_jax.storage.checkpoint_reading import read_step
from istanas_jax.storage.checkpoints import Checkpoints
from istanas_jax.storage.files import as_path


class Trained(NamedTuple):
    """A network that classifies images, without architecture variables or optimiser."""

    net: TargetNet  # without an auxiliary head
    variables: dict  # params and batch_stats
    preparation: Preparation  # how an image file becomes pixels
    mean: tuple[float, ...]  # images are (pixels / 255 - mean) / std
    std: tuple[float, ...]
    class_names: tuple[str, ...]

    @property
    def image_size(self) -> int:
        return self.preparation.size


def make_trained(net: TargetNet, params: dict, stats: dict, dataset: Dataset) -> Trained:
    """Keep everything of a network in training except its auxiliary head."""
    trees = {"params": params, "batch_stats": stats}
    variables = {
        collection: {name: part for name, part in tree.items() if name != "auxiliary"}
        for collection, tree in trees.items()
    }
    return Trained(
        net=net.clone(auxiliary=False),
        variables=variables,
        preparation=dataset.preparation,
        mean=tuple(dataset.mean.tolist()),
        std=tuple(dataset.std.tolist()),
        class_names=tuple(dataset.class_names),
    )


def save_trained(workdir: str | os.PathLike, trained: Trained, run: int = 0) -> None:
    """Write the network to the run's folder, beside those of other seeds."""
    net = trained.net
    about = {
        "genotype": net.genotype.to_dict(),
        "net": {
            "classes": net.classes,
            "cells": net.cells,
            "channels": net.channels,
            "stem": net.stem,
            "regime": net.regime,
            "image_channels": net.image_channels,
            "dtype": net.dtype,
        },
        "image_size": trained.image_size,
        "preparation": trained.preparation.to_dict(),
        "mean": trained.mean,
        "std": trained.std,
        "class_names": trained.class_names,
    }
    with Checkpoints(
        epath.Path(workdir) / TRAINED, keep=10**6, every_minutes=float("inf")
    ) as checkpoints:
        checkpoints.save(run, trained.variables, about=about, wait=True)


def load_trained(workdir: str | os.PathLike, run: int = 0) -> Trained:
    """Load the network that a run ended with."""
    folder = as_path(workdir) / TRAINED
    try:
        found = folder.exists()
    except ImportError:
        raise CheckpointError(
            f"{workdir} needs gcsfs: pip install -r requirements-tpu.txt"
        ) from None
    if not found:
        raise CheckpointError(f"{workdir} holds no trained network: the run has not finished")
    about = read_about(folder, run)
    net = TargetNet(genotype=Genotype.from_dict(about["genotype"]), **about["net"])
    like = jax.eval_shape(lambda: init_target(net, jax.random.key(0), about["image_size"]))
    variables = read_step(folder, run, like).state
    return Trained(
        net=net,
        variables=variables,
        preparation=_preparation(about, workdir),
        mean=tuple(about["mean"]),
        std=tuple(about["std"]),
        class_names=tuple(about["class_names"]),
    )


def _preparation(about: dict, workdir: str | os.PathLike) -> Preparation:
    """The preparation as stored or, for networks of earlier versions, from the run's config."""
    if "preparation" in about:
        return Preparation.from_dict(about["preparation"])
    data = (Workdir(workdir).read(Workdir.config_file) or {}).get("data")
    if data is None:
        raise CheckpointError(
            f"{workdir} does not say how images were prepared for its network: neither the "
            f"network, which an older version wrote, nor a {Workdir.config_file} does"
        )
    size = about["image_size"]
    resize = (data.get("resize") or size) if data.get("stream") else 0
    channels = about["net"]["image_channels"]
    return Preparation.from_dict({"size": size, "channels": channels, "resize": resize})
