"""Train a given cell on ImageNet, as the paper evaluates architectures there.

    python -m istanas_jax retrain --config configs/imagenet_retrain.py \
        --genotype ISTA_ImageNet --workdir runs/imagenet_retrain

The paper: 24.0 / 7.1 % top-1 / top-5 error for ISTA_ImageNet, 25.1 / 7.7 % for ISTA_onestage.
Variants: `:tpu` has bfloat16, `:tiny` is a smoke run.
"""

from ml_collections import ConfigDict

from configs import paper


def get_config(variant: str = "") -> ConfigDict:
    config = ConfigDict({"schedule": "retrain", "seed": 0, "genotype": "ISTA_ImageNet"})
    config.data = paper.imagenet()
    config.checkpoint = paper.checkpoint()
    config.log = paper.log()

    config.train = paper.target_network()
    config.train.update(
        {
            "stem": "imagenet",
            "cells": 14,  # supplement
            "channels": 48,  # supplement
            "epochs": 250,  # supplement
            "batch": 1024,  # supplement
            "label_smoothing": 0.1,  # release
            "drop_path": 0.0,  # release
            "cutout": 0,
            "runs": 1,
            "one_stage_norms": False,
        }
    )
    # Supplement; the five warm-up epochs are the release's.
    config.train.weights = paper.sgd(
        0.5, learning_rate_schedule="linear", warmup_epochs=5, weight_decay=3e-5
    )
    return paper.variant(config, variant, tiny=_tiny, tpu=paper.tpu)


def _tiny(config: ConfigDict) -> None:
    config.data.update({"image_size": 64, "resize": 73})
    paper.tiny_network(config.train)
    config.train.auxiliary_weight = 0.0  # 64 pixels are too few for the head
