"""The search methods and their own hyper-parameters, each with its source.

`add(config.search)` gives a two-stage config all of them; `search.method` chooses, and the parts
of the others are left out when the config is read. What all methods have (cells, channels, epochs,
batch, the rates of W) is in `config.search` itself; `baselines.py` has what was published of it.

"release" is the PyTorch code of a method's authors, "paper" their paper, "ours" a choice of this
project.
"""

from ml_collections import ConfigDict

from configs import paper
from istanas_jax.methods import METHODS


def ista(schedule: str) -> ConfigDict:
    """ISTA-NAS, in two stages or in one."""
    return ConfigDict(
        {
            "m": 7,  # release: rows of A, the same for every node and cell type
            "lam": 1e-5,  # supplement: lambda of the LASSO
            "columns": "uniform",  # release: A from U[0, 1); "sphere": columns of length 1
            "sigma": 1e-3,  # release: b starts as sigma N(0, 1)
            "signed": False,  # paper 3.3: the largest |z| are kept; True: the largest z
            "distinct": False,  # release: both connections may have the same predecessor
            "implicit": False,  # release: no gradient through z(b); True follows Eq. (network)
            "adam": paper.adam(6e-4),  # supplement
            "recovery": {
                "every": "epoch",  # release; "step" is Algorithm 1, a number counts steps
                "max_uncertified": 3,  # ours: more recoveries in a row without a solution stop it
            },
            # Ours: the target net must not be larger or slower than this; 0 sets no limit.
            "budget": {
                "max_parameters": 0,
                "max_multiply_adds": 0,
                "max_latency_ms": 0.0,  # on the device of the search, from images to logits
                "latency_batch": 1,  # so many images at once
            },
        }
        | {"one_stage": _one_stage, "two_stage": _two_stage}[schedule]()
    )


def _two_stage() -> dict:
    return {
        "first_update": "b",  # release; "w" is Algorithm 1, lines 4 and 5: W moves first
        # Ours: the paper's search explores nothing.
        "explore": {
            "draw": False,  # True: every step runs a support drawn at random, with equal weights
            "compare": False,  # True: b learns how drawn connections differ, not what they share
            "shared_weights": False,  # True: edges of a cell share the weights of an operation
            "one_loss": False,  # True: b moves by the loss of W, as in one-stage search
            "warmup_epochs": 0,  # W alone
        },
    }


def _one_stage() -> dict:
    return {
        "freeze": {
            "rule": "node",  # release: a node freezes by itself; "together" is Algorithm 2
            "distance": "all",  # release: of all entries of z; "kept" is the paper's, of the top s
            "epsilon": 1e-3,  # release: done when ||z_new - z_old|| falls to this
        }
    }


def darts() -> ConfigDict:
    """DARTS, Liu et al., ICLR 2019."""
    return ConfigDict(
        {
            "adam": paper.adam(3e-4),  # paper A.1.1: betas 0.5 and 0.999, weight decay 1e-3
            "sigma": 1e-3,  # release: alpha starts as sigma N(0, 1)
            "recompute": False,  # ours: True runs operations again for gradients, to save memory
        }
    )


def pc_darts() -> ConfigDict:
    """PC-DARTS, Xu et al., ICLR 2020."""
    return ConfigDict(
        {
            "adam": paper.adam(6e-4),  # paper 4.2: of alpha and beta
            "sigma": 1e-3,  # release
            "partial": 4,  # paper 4.2: operations see a quarter of the channels
            "warmup_epochs": 15,  # paper 4.2: of 50; W alone
            "recompute": False,  # ours
        }
    )


def snas() -> ConfigDict:
    """SNAS, Xie et al., ICLR 2019; its authors released no code."""
    return ConfigDict(
        {
            "adam": paper.adam(3e-4),  # paper, appendix: as DARTS
            "sigma": 1e-3,  # ours, as DARTS
            "temperature": 2.5,  # a public re-implementation, which names the paper
            "annealing": 3e-5,  # the same: falls as exp(-annealing * step)
            "final_temperature": 0.03,  # ours: a bound from below
            "recompute": False,  # ours
        }
    )


def nasp() -> ConfigDict:
    """NASP, Yao et al., AAAI 2020."""
    return ConfigDict(
        {
            "adam": paper.adam(3e-4),  # paper 4.1: as DARTS
            "sigma": 1e-3,  # ours: alpha starts as 1/2 + sigma N(0, 1)
            "recompute": False,  # ours
        }
    )


def pdarts() -> ConfigDict:
    """P-DARTS, Chen et al., ICCV 2019; a value per stage where there are three."""
    return ConfigDict(
        {
            "adam": paper.adam(6e-4),  # paper 4.2
            "sigma": 1e-3,  # release
            "stage_cells": (5, 11, 17),  # paper 4.2; instead of search.cells
            "candidates": (8, 5, 3),  # paper 4.2: of an edge, the zero operation counted
            "epochs": 25,  # paper 4.2: of each stage; instead of search.epochs
            "warmup_epochs": 10,  # paper 4.2: W alone
            "dropout": (0.0, 0.4, 0.7),  # paper 4.2: of skip-connections, at the start of a stage
            "dropout_decay": 0.2,  # release: per epoch, once alpha moves
            "max_skips": 2,  # paper 3.3: skip-connections of the normal cell
            "recompute": False,  # ours
        }
    )


def gdas() -> ConfigDict:
    """GDAS, Dong and Yang, CVPR 2019."""
    return ConfigDict(
        {
            "adam": paper.adam(3e-4),  # release
            "sigma": 1e-3,  # release
            "temperature": 10.0,  # paper; falls linearly
            "final_temperature": 0.1,  # paper
            "recompute": False,  # ours
        }
    )


def drnas() -> ConfigDict:
    """DrNAS, Chen et al., ICLR 2021."""
    own = ConfigDict(
        {
            "adam": paper.adam(6e-4),  # release
            "sigma": 1e-3,  # release
            "distance": "l2",  # release, on CIFAR-10; "kl" on NAS-Bench-201
            "distance_scale": 1e-3,  # release
            "warmup_epochs": 10,  # release: of 25; W alone
            "recompute": False,  # ours
        }
    )
    own.adam.weight_decay = 0.0  # release: the distance takes its place
    return own


def random() -> ConfigDict:
    """Random search."""
    return ConfigDict({"genotypes": 10})  # ours: that share the epochs of the search


# A method that is not named here has the hyper-parameters of DARTS.
BLOCKS = {name: darts for name in METHODS if name != "ista"} | {
    "pc_darts": pc_darts,
    "snas": snas,
    "nasp": nasp,
    "pdarts": pdarts,
    "gdas": gdas,
    "drnas": drnas,
    "random": random,
}


def add(search: ConfigDict) -> None:
    """All methods, of which ISTA-NAS is chosen."""
    search.method = "ista"
    search.ista = ista("two_stage")
    for name, block in BLOCKS.items():
        search[name] = block()


def small(search: ConfigDict, learning_rate: float) -> None:
    """All ours: for searches of few epochs."""
    epochs = search.epochs
    for name in BLOCKS:
        if "adam" in search[name]:
            search[name].adam.learning_rate = learning_rate
    search.pc_darts.warmup_epochs = (3 * epochs + 9) // 10
    search.drnas.warmup_epochs = (2 * epochs + 4) // 5
    per_stage = max(epochs // 3, 2)  # the three together as long as another method's search
    search.pdarts.update({"epochs": per_stage, "warmup_epochs": (2 * per_stage + 4) // 5})
    cells = search.cells
    search.pdarts.stage_cells = (cells, cells + 1, cells + 2)
    search.random.genotypes = next(n for n in range(min(10, epochs), 0, -1) if epochs % n == 0)
