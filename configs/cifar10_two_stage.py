"""Two-stage ISTA-NAS on CIFAR-10: search 8 cells at 16 channels, retrain 20 cells at 36.

    python -m istanas_jax run --config configs/cifar10_two_stage.py --workdir runs/two_stage

The paper: 2.54 ± 0.05 % test error, 3.32 M parameters; 0.05 GPU-days of search and 2.0 of
retraining on a GTX 1080Ti. Variants: `:small` is for a CPU, `:tpu` has bfloat16, `:tiny` is a smoke
run.
"""

from ml_collections import ConfigDict

from configs import methods, paper


def get_config(variant: str = "") -> ConfigDict:
    config = ConfigDict({"schedule": "two_stage", "seed": 0})
    config.data = paper.cifar10()
    config.space = paper.space()
    config.checkpoint = paper.checkpoint()
    config.log = paper.log()

    config.search = paper.network()
    config.search.update(
        {
            "cells": 8,  # supplement: 6 normal and 2 reduction cells
            "channels": 16,  # supplement
            "auxiliary_weight": 0.0,
            "cutout": 0,
            "epochs": 50,  # supplement
            "batch": 256,  # supplement
            "runs": 1,  # supplement: 5, the best of which on validation is kept
            "weights_fraction": 0.5,  # supplement: half the training set for W, the rest for b
            "shrink": 1,  # search sees the images as they are
        }
    )
    # The paper's text says 0.1, its supplement 0.2; the release searches with 0.1 down to 0.001.
    config.search.weights = paper.sgd(0.1, final_learning_rate=0.001)
    config.search.stop = paper.stop()
    methods.add(config.search)  # --config.search.method=darts and others

    config.train = paper.target_network()
    config.train.update(
        {
            "epochs": 600,  # supplement
            "batch": 96,  # supplement
            "runs": 1,  # supplement: 5 seeds, mean and deviation
            "one_stage_norms": False,  # release: batch norms after pools and identities
        }
    )
    config.train.weights = paper.sgd(0.025)  # supplement
    return paper.variant(config, variant, tiny=_tiny, small=_small, tpu=paper.tpu)


def _small(config: ConfigDict) -> None:
    """All ours: 20,000 images, 5 cells, minutes on a CPU."""
    config.data.max_images = 20_000
    small = {"cells": 5, "channels": 16, "batch": 64}
    config.search.update(small | {"epochs": 28, "shrink": 2})  # 16 x 16 pixels
    config.search.weights.learning_rate = 0.05
    paper.ours(config)
    methods.small(config.search, 3e-3)
    config.train.update(small | {"epochs": 6})
    config.train.update({"auxiliary_weight": 0.0, "drop_path": 0.0, "cutout": 0})
    config.train.weights.learning_rate = 0.05


def _tiny(config: ConfigDict) -> None:
    paper.tiny_network(config.search)
    methods.small(config.search, 1e-2)
    paper.tiny_network(config.train)
