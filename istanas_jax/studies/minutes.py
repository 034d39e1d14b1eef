"""Gives every method the same minutes: how many epochs of a search fit into them.

A method's steps are timed once, alone on the machine, before the study's first run; what follows
from it stays in the study's folder, so that a study which goes on later uses the same epochs.
"""

import math

from ml_collections import ConfigDict

# The part of the minutes that is kept for what is not timed: images, recoveries, checkpoints.
RESERVE = 0.05


def epochs_that_fit(config: ConfigDict, times: dict, minutes: float) -> int:
    """The largest number of epochs that end within the minutes; compiling does not count.

    ISTA-NAS keeps the epochs of its config if they fit. Random search has a whole number of
    genotypes, each trained for as long as the config says.

    Args:
      times: the result of `bench.search_time`.
    """
    seconds = 60 * minutes * (1 - RESERVE)
    epoch = times["step_s"] * times["steps_per_epoch"]
    evaluation = times["evaluation_s"]
    epoch += evaluation if times["evaluates_every_epoch"] else 0.0
    search = config.search
    if search.method == "random":
        share = epochs_of_a_genotype(search)
        return share * max(1, math.floor(seconds / (share * epoch + evaluation)))
    fit = max(1, math.floor((seconds - evaluation) / epoch))
    return min(fit, search.epochs) if search.method == "ista" else fit


def epochs_of_a_genotype(search: ConfigDict) -> int:
    """How long random search trains each genotype."""
    return search.epochs // search.random.genotypes


def with_epochs(config: ConfigDict, epochs: int) -> None:
    """Give a search so many epochs; parts of it, like a warm-up, keep their share."""
    search, before = config.search, config.search.epochs
    if search.method == "random":
        search.random.genotypes = epochs // epochs_of_a_genotype(search)
    own = search[search.method]
    for part in (search.weights, own, own.get("explore", {})):
        if "warmup_epochs" in part:
            part.warmup_epochs = part.warmup_epochs * epochs // before
    search.epochs = epochs
