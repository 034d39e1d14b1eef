"""Your own images: a folder of class folders, or an .npz with `images` and `labels`.

    python -m istanas_jax run --config configs/images.py --config.data.name=PATH --workdir runs/own

Sizes, classes and normalisation are taken from the data; everything else can be set as well, e.g.
`--config.train.cells=20`. The sizes here are ours, meant for a few thousand images of 28 to 64
pixels and a machine with one GPU, or a night on a CPU. Variant `:tiny` is a smoke run.
"""

from ml_collections import ConfigDict

from configs import methods, paper


def get_config(variant: str = "") -> ConfigDict:
    config = ConfigDict({"schedule": "two_stage", "seed": 0})
    config.data = paper.cifar10()
    config.data.update(
        {
            "name": "",  # to be given
            "classes": 0,  # 0: as found in the data
            "image_size": 0,
            "image_channels": 0,
            "mean": (),  # empty: computed from the training images
            "std": (),
            "flip": False,  # True where a mirrored image has the same class
            "holdout_fraction": 0.1,
            "test_fraction": 0.2,
        }
    )
    config.space = paper.space()
    config.checkpoint = paper.checkpoint()
    config.log = paper.log()

    config.search = paper.network()
    config.search.update({"cells": 5, "channels": 16, "auxiliary_weight": 0.0})
    config.search.update({"cutout": 0, "epochs": 50, "batch": 64})
    config.search.update({"runs": 1, "weights_fraction": 0.5, "shrink": 1})
    config.search.weights = paper.sgd(0.05, final_learning_rate=0.001)
    config.search.stop = paper.stop()
    methods.add(config.search)
    methods.small(config.search, 2e-3)

    config.train = paper.target_network()
    config.train.update({"cells": 8, "channels": 32, "auxiliary_weight": 0.0, "cutout": 0})
    config.train.update({"drop_path": 0.1, "epochs": 200, "batch": 64, "runs": 1})
    config.train.one_stage_norms = False
    config.train.weights = paper.sgd(0.05)
    paper.ours(config)
    return paper.variant(config, variant, tiny=_tiny)


def _tiny(config: ConfigDict) -> None:
    paper.tiny_network(config.search)
    methods.small(config.search, 1e-2)
    paper.ours(config)
    paper.tiny_network(config.train)
