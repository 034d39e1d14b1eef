"""Whether the values of a config make sense, before anything is read, written or compiled."""

from collections.abc import Callable
from typing import Any

from ml_collections import ConfigDict

from istanas_jax.methods import METHODS
from istanas_jax.optimizers import DECAYS

PHASES = ("search", "retrain", "train")


def _at_least(least: float) -> tuple[Callable[[Any], bool], str]:
    return lambda value: value >= least, f"{least} or more"


def _above(bound: float) -> tuple[Callable[[Any], bool], str]:
    return lambda value: value > bound, f"above {bound}"


def _one_of(*names: str) -> tuple[Callable[[Any], bool], str]:
    return lambda value: value in names, f"one of {', '.join(names)}"


FRACTION = (lambda value: 0 <= value < 1, "from 0 to below 1")
# By the end of the key: what it must be, and how to say so.
RULES = {
    "holdout": FRACTION,
    "test": FRACTION,
    "limit": _at_least(0),
    "pad": _at_least(0),
    "workers": _at_least(0),
    "resize": _at_least(0),
    "image_size": _at_least(0),
    "weights_fraction": (lambda value: 0 < value < 1, "between 0 and 1"),
    "drop_path": FRACTION,
    "label_smoothing": FRACTION,
    "auxiliary_weight": _at_least(0),
    "cutout": _at_least(0),
    "epochs": _at_least(1),
    "batch": _at_least(1),
    "accumulate": _at_least(1),
    "runs": _at_least(1),
    "cells": _at_least(1),
    "channels": _at_least(1),
    "nodes": _at_least(1),
    "s": _at_least(1),
    "m": _at_least(1),
    "lam": _above(0),
    "sigma": _above(0),
    "epsilon": _at_least(0),
    "keep": _at_least(1),
    "every_minutes": _above(0),
    "every_steps": _at_least(0),
    "learning_rate": _above(0),
    "final_learning_rate": _at_least(0),
    "clip": _above(0),
    "partial": _at_least(1),
    "warmup_epochs": _at_least(0),
    "temperature": _above(0),
    "final_temperature": _above(0),
    "annealing": _at_least(0),
    "max_skips": _at_least(0),
    "genotypes": _at_least(1),
    "dtype": _one_of("float32", "bfloat16"),
    "stem": _one_of("cifar", "imagenet"),
    "decay": _one_of(*DECAYS),
    "method": _one_of(*METHODS),
}


def check_config(config: ConfigDict, devices: int) -> None:
    """Raise a ValueError that says in one sentence what is wrong, if something is."""
    _check_part(config, "")
    if config.schedule == "one_stage" and config.search.method != "ista":
        raise ValueError(
            f"search.method is {config.search.method}, but only ista searches in one stage"
        )
    for phase in PHASES:
        if phase not in config:
            continue
        batch, parts = config[phase].batch, config[phase].accumulate
        if batch % (devices * parts):
            said = f"{devices} devices" + (f" times {parts} parts" if parts > 1 else "")
            raise ValueError(f"{phase}.batch {batch} cannot be divided by {said}")


def _check_part(part: ConfigDict, prefix: str) -> None:
    for key, value in part.items():
        if isinstance(value, ConfigDict):
            _check_part(value, f"{prefix}{key}.")
        elif key in RULES:
            good, words = RULES[key]
            if not good(value):
                raise ValueError(f"{prefix}{key} is {value}, it must be {words}")
