"""One-stage ISTA-NAS on ImageNet: search and train the 14-cell, 48-channel net in one run.

    python -m istanas_jax run --config configs/imagenet_one_stage.py --workdir runs/imagenet

The paper: 24.0 / 7.1 % top-1 / top-5 error, 5.65 M parameters, 638 M FLOPs, 4.2 days on eight
GTX 1080Ti. Variants: `:tpu` has bfloat16, `:tiny` is a smoke run.
"""

from ml_collections import ConfigDict

from configs import methods, paper


def get_config(variant: str = "") -> ConfigDict:
    config = ConfigDict({"schedule": "one_stage", "seed": 0})
    config.data = paper.imagenet()
    config.space = paper.space()
    config.checkpoint = paper.checkpoint()
    config.log = paper.log()

    network = {
        "stem": "imagenet",  # supplement: three stride-2 convolutions, 224 to 28 pixels
        "cells": 14,  # supplement: 12 normal and 2 reduction cells
        "channels": 48,  # supplement
        "batch": 1024,  # supplement
        "label_smoothing": 0.1,  # release
        "cutout": 0,
    }
    config.search = paper.network()
    # Epochs are ours: nodes that have not frozen by then are frozen.
    config.search.update(network | {"method": "ista", "epochs": 50})
    config.search.weights = paper.sgd(
        0.5, learning_rate_schedule="constant", warmup_epochs=5, weight_decay=3e-5
    )
    config.search.ista = methods.ista("one_stage")
    config.search.ista.adam.learning_rate = 6e-3  # supplement
    config.search.stop = paper.stop()

    config.train = paper.target_network()
    # Epochs by the supplement; no paths are dropped by the release.
    config.train.update(network | {"epochs": 250, "drop_path": 0.0})
    config.train.weights = paper.sgd(
        0.5, learning_rate_schedule="linear", weight_decay=3e-5
    )  # supplement
    return paper.variant(config, variant, tiny=_tiny, tpu=paper.tpu)


def _tiny(config: ConfigDict) -> None:
    config.data.update({"image_size": 64, "resize": 73})
    for phase in (config.search, config.train):
        paper.tiny_network(phase)
        phase.auxiliary_weight = 0.0  # 64 pixels are too few for the head
