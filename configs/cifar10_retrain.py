"""Train a given cell on CIFAR-10 at full size, as the paper evaluates every architecture.

    python -m istanas_jax retrain --config configs/cifar10_retrain.py --genotype ISTA_twostage \
        --workdir runs/retrain

The paper: 2.54 ± 0.05 % test error for ISTA_twostage, 2.0 GPU-days on a GTX 1080Ti.
Variants: `:one_stage` adds the batch norms of one-stage cells, `:tpu` has bfloat16, `:tiny` is a
smoke run.
"""

from ml_collections import ConfigDict

from configs import paper


def get_config(variant: str = "") -> ConfigDict:
    config = ConfigDict({"schedule": "retrain", "seed": 0, "genotype": "ISTA_twostage"})
    config.data = paper.cifar10()
    config.checkpoint = paper.checkpoint()
    config.log = paper.log()

    config.train = paper.target_network()
    config.train.update({"epochs": 600, "batch": 96, "runs": 1, "one_stage_norms": False})
    config.train.weights = paper.sgd(0.025)  # supplement
    return paper.variant(config, variant, tiny=_tiny, one_stage=_one_stage, tpu=paper.tpu)


def _tiny(config: ConfigDict) -> None:
    paper.tiny_network(config.train)


def _one_stage(config: ConfigDict) -> None:
    config.genotype = "ISTA_onestage"
    config.train.one_stage_norms = True
