"""Search methods compared under one budget; everything they share is here once.

    python -m istanas_jax study correlation --config configs/study.py:correlation --workdir runs/tau

Variants: `cost`, `correlation`, `accuracy`, `suite`, `curves`, `quality` have the paper's sizes and
are for an accelerator, as is `accuracy_imagenet`; with `_small` they end on a 2-core CPU within an
hour (`quality_small`: five to six), with `_tiny` they are smoke runs on digits. The paper: Tables
1 to 4 and Figure 2; `suite` and `quality` are ours.

All methods have the batch of ISTA-NAS, 256: where a dense super-net needs too much memory for it,
`--config.search.microbatches=4` sees it in four pieces.
"""

from ml_collections import ConfigDict

from configs import (
    cifar10_one_stage,
    cifar10_two_stage,
    digits,
    imagenet_one_stage,
    imagenet_retrain,
    methods,
)

COMPARED = ("ista", "darts", "pc_darts", "random")
QUALITY = ("ista", "darts", "pc_darts", "snas", "random")
SIZES = ("small", "tiny", "imagenet")
ONE_STAGE = ("space", "search", "train")  # what a one-stage run has of its own


def get_config(variant: str = "correlation") -> ConfigDict:
    name, _, size = variant.partition("_")
    sizes = SIZES if name == "accuracy" else SIZES[:-1]
    if name not in STUDIES or size not in ("", *sizes):
        there = ", ".join(STUDIES)
        raise ValueError(f"no variant {variant!r}, there are: {there}, each with _small or _tiny")
    if size == "tiny":
        two, one = digits.get_config("tiny"), digits.get_config("one_stage_tiny")
    elif variant in ("quality_small", "suite_small"):
        two, one = cifar10_two_stage.get_config("small"), cifar10_one_stage.get_config()
    else:
        two, one = cifar10_two_stage.get_config(), cifar10_one_stage.get_config()
    config = two
    config.schedule = "study"
    del config.search.method  # a study has several
    config.one_stage = ConfigDict({key: one[key] for key in ONE_STAGE})
    config.study = ConfigDict({"name": name, "methods": COMPARED})
    STUDIES[name](config)
    if size == "small":
        _small(config)
    elif size == "tiny":
        _tiny(config)
    elif size == "imagenet":
        _imagenet(config)
    if name in ("cost", "suite", "quality"):
        del config.one_stage
    return config


def _cost(config: ConfigDict) -> None:
    config.study.batches = (64, 256, 512)  # paper, Table 1
    config.study.steps = 10  # ours: that are timed


def _correlation(config: ConfigDict) -> None:
    config.study.update(
        {
            "methods": ("ista", "darts", "pc_darts"),  # paper, Table 2
            "one_stage": True,  # paper, Table 2
            "seeds": 8,  # paper 4.2
            "resamples": 2000,  # ours: of the bootstrap
        }
    )


def _accuracy(config: ConfigDict) -> None:
    config.study.update(
        {
            "methods": (
                "ista",
                "darts_second_order",
                "snas",
                "pdarts",
                "nasp",
                "pc_darts",
                "random",
            ),
            "one_stage": True,  # paper, Table 3
            "seeds": 1,
            "cells": (),  # given ones to train in the same way: published names, random:SEED
        }
    )
    config.search.runs = 5  # supplement: the best of which on validation is kept
    config.train.runs = 5  # supplement: mean and deviation


def _suite(config: ConfigDict) -> None:
    """All ours: spaces of RobustDARTS in which DARTS collapses."""
    config.study.update(
        {
            "methods": ("ista", "darts"),
            "spaces": ("s2", "s4"),
            "one_stage": False,
            "seeds": 3,
            "cells": (),
        }
    )


def _curves(config: ConfigDict) -> None:
    config.study.update({"methods": ("ista", "pc_darts", "darts"), "one_stage": True, "seeds": 1})
    config.data.holdout_fraction = 0.1  # ours: for accuracies of images that train nothing


def _quality(config: ConfigDict) -> None:
    """All ours."""
    config.study.update(
        {
            "methods": QUALITY,
            "one_stage": False,
            "seeds": 6,
            "minutes": 72.0,  # of a search; paper, Table 3: 0.05 GPU-days
            "steps": 10,  # that are timed
            "resamples": 10_000,  # of the bootstrap
        }
    )
    # Cells that are trained from scratch, each with so many seeds: found by these methods, random.
    config.study.trained = ConfigDict({"methods": ("ista",), "found": 3, "random": 8, "seeds": 2})


STUDIES = {
    "cost": _cost,
    "correlation": _correlation,
    "accuracy": _accuracy,
    "suite": _suite,
    "curves": _curves,
    "quality": _quality,
}


def _imagenet(config: ConfigDict) -> None:
    """Table 4: cells found on CIFAR-10 and random ones, trained alike; and one-stage."""
    one, given = imagenet_one_stage.get_config(), imagenet_retrain.get_config()
    config.data, config.train = one.data, given.train
    config.one_stage = ConfigDict({key: one[key] for key in ONE_STAGE})
    cells = ("ISTA_onestage", "PC_DARTS_image", "PDARTS", "SNAS", "DARTS_V2", "random:0")
    config.study.update({"methods": (), "cells": cells})


def _small(config: ConfigDict) -> None:
    """All ours: a tenth of the steps of cifar10_two_stage.py:small, at ten times its rates."""
    name = config.study.name
    if name == "suite":  # our search with few images, small cells and few epochs
        config.data.max_images = 5_000
        config.search.update({"cells": 3, "channels": 8, "shrink": 1, "epochs": 7})
        config.search.ista.explore.warmup_epochs = 1
        config.train.channels = 8
        config.study.seeds = 1  # of both methods in both spaces: three quarters of an hour
        return
    config.study.methods = COMPARED
    if name == "cost":  # the paper's net: 8 cells, 16 channels
        config.study.update({"batches": (16, 64, 256), "steps": 5})
        return
    if name == "quality":  # the search of cifar10_two_stage.py:small
        config.study.update({"methods": QUALITY, "minutes": 8.0, "steps": 40})
        config.train.channels = 8  # 22 trainings
        return
    config.study.seeds = {"correlation": 3, "accuracy": 3, "curves": 2}[name]
    config.data.update({"max_images": 5_000, "holdout_fraction": 0.2})
    config.search.ista.sigma = 0.1
    plain = {"auxiliary_weight": 0.0, "cutout": 0, "batch": 64}
    search, target = {"cells": 3, "channels": 8}, {"cells": 5, "channels": 8}
    trained = target | {"drop_path": 0.0, "epochs": 6}
    config.search.update(plain | search | {"epochs": 3, "runs": 1})
    config.search.weights.learning_rate = 0.05
    config.search.ista.adam.learning_rate = 6e-3
    config.search.ista.recovery.every = "10"  # three times an epoch
    methods.small(config.search, 3e-2)
    config.train.update(plain | trained | {"runs": 1})
    config.train.weights.learning_rate = 0.05
    one = config.one_stage
    one.search.ista.freeze.epsilon = 1e-2
    one.search.update(plain | target | {"epochs": 3})
    one.search.weights.learning_rate = 0.05
    one.search.ista.adam.learning_rate = 6e-3
    one.search.ista.budget.max_parameters = 0
    one.train.update(plain | trained)
    one.train.weights.learning_rate = 0.05


def _tiny(config: ConfigDict) -> None:
    """Smoke runs."""
    config.study.methods = ("ista", "random")
    if config.study.name == "cost":
        config.study.update({"batches": (8, 16), "steps": 2})
        return
    config.study.seeds = 2
    if config.study.name == "suite":
        config.study.spaces = ("s2",)
    if config.study.name == "quality":
        config.study.update({"minutes": 0.05, "steps": 2})
        config.study.trained.update({"found": 1, "random": 1, "seeds": 1})
    config.search.runs = config.train.runs = 1
