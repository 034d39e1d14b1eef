"""Start from the weights of a trained network: its body is kept, its head may be new."""

import os
from collections.abc import Iterable

from ml_collections import ConfigDict

from istanas_jax.data.dataset import Dataset
from istanas_jax.runs.trained_network import Trained, load_trained
from istanas_jax.training.optimizers import PART_RATES, is_head

# Keys whose values are those of the network that is taken.
TAKEN = ("genotype", "train.cells", "train.channels", "train.stem", "train.one_stage_norms")
TAKEN += ("data.mean", "data.std", "data.image_channels", "train.transfer.source")


def take(config: ConfigDict, run: str | os.PathLike, given: Iterable[str] = ()) -> ConfigDict:
    """Make a config that starts from the network in a run's folder.

    Args:
      config: has a part `train.transfer`, as configs/transfer.py does.
      given: keys that the user has set.
    """
    if "transfer" not in config.train:
        raise ValueError("the config has no part train.transfer: --from needs one, as in transfer")
    if clash := next((key for key in given if key in TAKEN), None):
        raise ValueError(f"{clash} is that of the network in {os.fspath(run)}: leave it out")
    config = config.copy_and_resolve_references()
    trained = load_trained(run, config.train.transfer.run)
    net = trained.net
    with config.unlocked():
        config.genotype = net.genotype.to_json()
        config.train.update({"cells": net.cells, "channels": net.channels, "stem": net.stem})
        config.train.one_stage_norms = net.regime == "one_stage"
        config.train.transfer.source = os.path.abspath(run) if "://" not in str(run) else str(run)
        config.data.update({"mean": trained.mean, "std": trained.std})
        config.data.image_channels = net.image_channels
    if is_frozen(config) and config.train.auxiliary_weight:
        raise ValueError(
            "train.auxiliary_weight must be 0: an auxiliary head trains the body, which is frozen"
        )
    return config


def is_frozen(config: ConfigDict) -> bool:
    """Whether only the head learns; batch norms then use the statistics that they came with."""
    rates = config.train.get("transfer")
    return rates is not None and not (rates.stem_rate or rates.cells_rate)


def part_rates(config: ConfigDict) -> dict[str, float] | None:
    """What the learning rate is multiplied by in each part of the network; None without one."""
    transfer = config.train.get("transfer")
    return transfer and {part: transfer[f"{part}_rate"] for part in PART_RATES}


def source_of(config: ConfigDict, dataset: Dataset) -> Trained:
    """The network that a run starts from; a ValueError if its head is wanted and does not fit."""
    transfer = config.train.transfer
    trained = load_trained(transfer.source, transfer.run)
    classes = trained.net.classes
    if transfer.head == "kept" and dataset.classes != classes:
        raise ValueError(
            f"the head of the network in {transfer.source} is for {classes} classes, but "
            f"{dataset.name} has {dataset.classes}: set train.transfer.head to new"
        )
    return trained


def take_weights(variables: dict, config: ConfigDict, dataset: Dataset) -> dict:
    """Replace the body, and the head if it is kept, of freshly initialised variables."""
    found = source_of(config, dataset).variables
    kept = config.train.transfer.head == "kept"
    return {
        kind: {
            name: found[kind][name] if name in found[kind] and (kept or not is_head(name)) else part
            for name, part in tree.items()
        }
        for kind, tree in variables.items()
    }
