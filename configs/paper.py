"""The numbers the configs share, each with its source.

Sources: "paper" is Yang et al., ISTA-NAS, NeurIPS 2020, main text; "supplement" its appendix A;
"release" the authors' PyTorch code, where the paper is silent or says otherwise; "ours" is a
choice of this project. A config starts from these blocks and overrides what it needs.
"""

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder


def space() -> ConfigDict:
    """What is searched; what is empty, 0 or None is as the named space has it."""
    return ConfigDict(
        {
            # paper: the operations of DARTS; supplement: 6 nodes of which 2 are inputs; 4.1: each
            # intermediate node keeps two connections
            "name": "darts",
            "operations": (),  # names, or "my_operations.py:name" of a file of your own
            "nodes": 0,
            "s": (),  # connections that a node keeps: one number, or one for each node
            "distinct": placeholder(bool),  # they must have different predecessors
            "candidates": (),  # operations per cell type and edge, if they differ
            "alike": placeholder(bool),  # normal and reduction cells have the same connections
            "zero": placeholder(bool),  # DARTS and its descendants also weigh zero
        }
    )


def cifar10() -> ConfigDict:
    return ConfigDict(
        {
            "name": "cifar10",  # a TFDS name, "digits", a folder of class folders, or an .npz
            "dir": "",  # where the TFDS data lies; empty: TFDS's own default
            "classes": 10,
            "image_size": 32,
            "image_channels": 3,
            "mean": (0.49139968, 0.48215827, 0.44653124),  # release
            "std": (0.24703233, 0.24348505, 0.26158768),  # release
            "pad": 4,  # supplement: pad with 0, then crop at random
            "flip": True,  # supplement
            "holdout_fraction": 0.0,  # fraction of the training images kept aside for monitoring
            "test_fraction": 0.0,  # fraction that becomes the test split where the data has none
            "max_images": 0,  # use that many training images; 0: all
        }
    )


def imagenet() -> ConfigDict:
    return ConfigDict(
        {
            "name": "imagenet2012",
            "dir": "",
            "classes": 1000,
            "image_size": 224,  # supplement
            "image_channels": 3,
            "mean": (0.485, 0.456, 0.406),  # the customary values, as in the release
            "std": (0.229, 0.224, 0.225),
            "pad": 0,
            "resize": 256,  # release: validation takes the centre 224 of 256
            "flip": True,  # supplement
            "color_jitter": (0.4, 0.4, 0.4, 0.2),  # release: brightness, contrast, saturation, hue
            "stream": True,  # ours: decoded as they are needed, since 190 GB of pixels are too many
            "workers": 0,  # ours: a thread per core decodes; N: that many processes do
            "holdout_fraction": 0.0,
            "test_fraction": 0.0,
            "max_images": 0,
        }
    )


def network() -> ConfigDict:
    """A network and how it is regularised; as large as the target net of CIFAR-10."""
    return ConfigDict(
        {
            "stem": "cifar",  # or "imagenet": three stride-2 convolutions
            "cells": 20,  # supplement: 18 normal and 2 reduction cells
            "channels": 36,  # supplement
            "auxiliary_weight": 0.4,  # release; 0 builds no auxiliary head
            "cutout": 16,  # release
            "label_smoothing": 0.0,
            "sync_norms": False,  # release: batch statistics of each device alone
            "microbatches": 1,  # pieces in which a device sees its part of a batch, to save memory
            "dtype": "float32",  # of activations; parameters and statistics are always float32
            # ours: of float32 products; "default" is the platform's (TPU: bfloat16, GPU: TF32)
            "matmul_precision": "default",
        }
    )


def target_network() -> ConfigDict:
    """A network whose architecture is known: paths of it are dropped."""
    net = network()
    net.drop_path = 0.2  # release: reached linearly over the epochs
    return net


def sgd(learning_rate: float, **overrides) -> ConfigDict:
    """SGD for W."""
    return ConfigDict(
        {
            "learning_rate": learning_rate,
            "final_learning_rate": 0.0,  # supplement: annealed down to zero
            "learning_rate_schedule": "cosine",  # or "linear", "constant"
            "warmup_epochs": 0,
            "momentum": 0.9,  # supplement
            "weight_decay": 3e-4,  # supplement; added to the gradient
            "max_gradient_norm": 5.0,  # release: longer gradients are shortened to it
        }
        | overrides
    )


def adam(learning_rate: float) -> ConfigDict:
    """Adam for the variables of an architecture: b, or alpha."""
    return ConfigDict(
        {
            "learning_rate": learning_rate,
            "b1": 0.5,  # supplement
            "b2": 0.999,  # supplement
            "weight_decay": 1e-3,  # supplement; added to the gradient, as the release does
        }
    )


def transfer() -> ConfigDict:
    """Ours: how a training that starts from another network's weights treats its parts."""
    return ConfigDict(
        {
            "source": "",  # a run's folder: `retrain --from` sets it
            "run": 0,  # which of its trained networks
            "head": "new",  # or "kept", for the same classes
            "stem_rate": 0.1,  # times weights.learning_rate; 0: frozen
            "cells_rate": 0.1,
            "head_rate": 1.0,
        }
    )


def stop() -> ConfigDict:
    """Ours: when a search ends before its epochs are over; 0 is never."""
    return ConfigDict(
        {
            "weight_free": 0,  # connections of the normal cell without weights: at least so many
            "unchanged_epochs": 0,  # epochs in which the support stays the same
            "warning": 0.6,  # not a stop: said once when a larger share comes to have no weights
        }
    )


def checkpoint() -> ConfigDict:
    """All ours."""
    return ConfigDict({"every_minutes": 10.0, "every_steps": 0, "keep_last": 2})


def log() -> ConfigDict:
    """Where measurements go besides the run's own files."""
    return ConfigDict(
        {
            "writer": "",  # "wandb" or "mlflow": to this service too
            "profile": "",  # "10:20" records steps 10 to 20 of each phase; --profile sets it
        }
    )


def ours(config: ConfigDict) -> None:
    """The search that finds good cells in minutes: what differs from the paper, all of it.

    Every step runs a support drawn at random with weights that all edges share, so every candidate
    gets its gradient; b sums up how they compare once W has seen some of the images, and z is exact
    enough to rank all candidates of a node. docs/search.md shows what each part is worth.
    """
    config.search.ista.update({"m": 28, "columns": "sphere", "signed": True, "distinct": True})
    explore = config.search.ista.explore
    explore.update({"draw": True, "compare": True, "shared_weights": True, "one_loss": True})
    explore.warmup_epochs = config.search.epochs // 7


def variant(config: ConfigDict, name: str, **variants) -> ConfigDict:
    """Apply the named variant, a function that changes the config; "" leaves it as it is."""
    if name:
        if name not in variants:
            raise ValueError(f"no variant {name!r}, there are: {', '.join(sorted(variants))}")
        variants[name](config)
    return config


def tpu(config: ConfigDict) -> None:
    """Ours: activations in bfloat16, the matrix unit's own type; weights and sums stay float32."""
    for phase in ("search", "train"):
        if phase in config:
            config[phase].dtype = "bfloat16"


def tiny_network(net: ConfigDict) -> None:
    """The smallest network that has every part: for smoke runs."""
    net.update({"cells": 3, "channels": 4, "epochs": 2, "batch": 16})
