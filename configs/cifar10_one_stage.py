"""One-stage ISTA-NAS on CIFAR-10: search and train the 20-cell, 36-channel net in one run.

    python -m istanas_jax run --config configs/cifar10_one_stage.py --workdir runs/one_stage

The paper: 2.36 ± 0.06 % test error, 3.37 M parameters, 2.3 GPU-days in all on a GTX 1080Ti.
Variants: `:small` is for a CPU, `:tpu` has bfloat16, `:tiny` is a smoke run.
"""

from ml_collections import ConfigDict

from configs import methods, paper


def get_config(variant: str = "") -> ConfigDict:
    config = ConfigDict({"schedule": "one_stage", "seed": 0})
    config.data = paper.cifar10()
    config.space = paper.space()
    config.checkpoint = paper.checkpoint()
    config.log = paper.log()

    config.search = paper.network()
    config.search.update(
        {
            "method": "ista",  # the only one for one stage
            "epochs": 200,  # ours: nodes that have not frozen by then are frozen (release: ~120)
            "batch": 96,  # supplement
        }
    )
    config.search.weights = paper.sgd(0.025, learning_rate_schedule="constant")  # supplement
    config.search.ista = methods.ista("one_stage")
    config.search.ista.adam.learning_rate = 3e-4  # release
    config.search.ista.budget.max_parameters = 3_700_000  # release
    config.search.stop = paper.stop()

    config.train = paper.target_network()
    config.train.update({"epochs": 600, "batch": 96})  # supplement
    config.train.weights = paper.sgd(0.025, final_learning_rate=0.001)  # release
    return paper.variant(config, variant, tiny=_tiny, small=_small, tpu=paper.tpu)


def _small(config: ConfigDict) -> None:
    """All ours: 20,000 images, 5 cells; the rule of rest is that of epochs of 312 steps."""
    config.data.max_images = 20_000
    config.search.ista.freeze.epsilon = 1e-2
    small = {"cells": 5, "channels": 16, "batch": 64}
    small |= {"auxiliary_weight": 0.0, "cutout": 0}
    config.search.update(small | {"epochs": 8})
    config.search.weights.learning_rate = 0.05
    config.search.ista.adam.learning_rate = 6e-4
    config.search.ista.budget.max_parameters = 0
    config.train.update(small | {"drop_path": 0.0, "epochs": 6})
    config.train.weights.learning_rate = 0.05


def _tiny(config: ConfigDict) -> None:
    paper.tiny_network(config.search)
    paper.tiny_network(config.train)
