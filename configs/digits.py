"""The embedded data: scikit-learn's 1,797 handwritten digits, 8 x 8 pixels, no download.

    python -m istanas_jax run --config configs/digits.py --workdir runs/digits

Two-stage at a size for a 2-core CPU. Variants: `:one_stage` searches and trains in one run,
`:tiny` and `:one_stage_tiny` are smoke runs. Sizes and rates are ours.
"""

from ml_collections import ConfigDict

from configs import methods, paper


def get_config(variant: str = "") -> ConfigDict:
    one_stage = variant.startswith("one_stage")
    config = ConfigDict({"schedule": "one_stage" if one_stage else "two_stage", "seed": 0})
    config.data = ConfigDict(
        {
            "name": "digits",
            "dir": "",
            "classes": 10,
            "image_size": 8,
            "image_channels": 1,
            "mean": (),  # empty: computed from the training images
            "std": (),
            "pad": 1,
            "flip": False,  # a mirrored digit is another sign
            "holdout_fraction": 0.1,
            "test_fraction": 0.2,
            "max_images": 0,
        }
    )
    config.space = paper.space()
    config.checkpoint = paper.checkpoint()
    config.log = paper.log()

    small = {"cells": 3, "channels": 16, "auxiliary_weight": 0.0, "cutout": 0}
    config.search = paper.network()
    config.search.update(small | {"epochs": 40, "batch": 64})
    config.search.stop = paper.stop()
    target = paper.target_network()
    target.update(small | {"drop_path": 0.0, "epochs": 30, "batch": 64})
    target.weights = paper.sgd(0.025)
    if one_stage:
        config.search.ista = methods.ista("one_stage")
        config.search.method = "ista"
        config.search.weights = paper.sgd(0.025, learning_rate_schedule="constant")
        config.search.ista.adam.learning_rate = 1e-3
        config.search.epochs = 100  # a limit: nodes come to rest before it
        # With a loss near 0 Adam still moves b by its decay: 1e-3 in an epoch of 20 steps.
        config.search.ista.freeze.epsilon = 2e-3
        config.train = target
    else:
        config.search.update({"runs": 1, "weights_fraction": 0.5, "shrink": 1})
        config.search.weights = paper.sgd(0.025, final_learning_rate=0.001)
        methods.add(config.search)
        methods.small(config.search, 5e-3)
        target.update({"runs": 1, "one_stage_norms": False})
        config.train = target
        paper.ours(config)
    return paper.variant(
        config, variant, tiny=_tiny, one_stage=lambda _: None, one_stage_tiny=_tiny
    )


def _tiny(config: ConfigDict) -> None:
    for phase in ("search", "train"):
        paper.tiny_network(config[phase])
    if config.schedule == "two_stage":
        methods.small(config.search, 1e-2)
        paper.ours(config)
