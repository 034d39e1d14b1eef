"""A trained network on other images: its body is kept, its head is new.

    python -m istanas_jax retrain --config configs/transfer.py --from RUN \
        --config.data.name=PATH --workdir runs/transfer

RUN is the folder of a finished run. Cells, sizes and normalisation are those of its network. By
default the body is fine-tuned at a tenth of the head's learning rate; with
`--config.train.transfer.stem_rate=0 --config.train.transfer.cells_rate=0` it is frozen. All numbers
are ours, for a few hundred to a few thousand images. Variant `:tiny` is a smoke run.
"""

from ml_collections import ConfigDict

from configs import paper


def get_config(variant: str = "") -> ConfigDict:
    config = ConfigDict({"schedule": "retrain", "seed": 0, "genotype": ""})
    config.data = paper.cifar10()
    config.data.update({"name": "", "classes": 0, "image_size": 0})  # to be given; 0: as found
    config.data.update({"holdout_fraction": 0.0, "test_fraction": 0.2})
    config.checkpoint = paper.checkpoint()
    config.log = paper.log()

    config.train = paper.target_network()  # cells, channels, stem: those of the network taken
    config.train.update({"auxiliary_weight": 0.0, "cutout": 0, "drop_path": 0.0})
    config.train.update({"epochs": 30, "batch": 50, "runs": 1, "one_stage_norms": False})
    config.train.weights = paper.sgd(0.05)
    config.train.transfer = paper.transfer()
    return paper.variant(config, variant, tiny=_tiny)


def _tiny(config: ConfigDict) -> None:
    paper.tiny_network(config.train)
