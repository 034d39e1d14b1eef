"""Other methods on CIFAR-10, each with the search that its authors published.

    python -m istanas_jax run --config configs/baselines.py:pc_darts --workdir runs/pc_darts

Variants: darts, darts_second_order, pc_darts, snas, nasp, pdarts, gdas, drnas, random; with
`_small` for a CPU or `_tiny` for a smoke run, `darts_small`. The found cells are retrained as
ISTA-NAS's are. As the paper's tables have them (test error, GPU-days of search): DARTS second order
2.76 %, 4.0; SNAS 2.85 %, 1.5; P-DARTS 2.50 %, 0.3; NASP 2.83 %, 0.1; PC-DARTS 2.57 %, 0.1. GDAS and
DrNAS are not in them.
"""

from ml_collections import ConfigDict

from configs import cifar10_two_stage, methods, paper

# search.batch, search.epochs, W's first and last learning rate
PUBLISHED = {
    "darts": (64, 50, 0.025, 0.001),  # paper A.1.1, release
    "darts_second_order": (64, 50, 0.025, 0.001),
    "pc_darts": (256, 50, 0.1, 0.0),  # paper 4.2, release
    "snas": (64, 150, 0.025, 0.0),  # paper, appendix
    "nasp": (64, 50, 0.025, 0.001),  # paper 4.1: as DARTS
    "pdarts": (96, 25, 0.025, 0.0),  # paper 4.2
    "gdas": (64, 240, 0.025, 0.001),  # paper
    "drnas": (64, 50, 0.1, 0.0),  # release, whose two stages have 25 epochs each
    "random": (64, 50, 0.025, 0.001),  # ours: the budget of DARTS
}


def get_config(variant: str = "darts") -> ConfigDict:
    size = next((size for size in ("small", "tiny") if variant.endswith(size)), "")
    method = variant.removesuffix(size).removesuffix("_") or "darts"
    if method not in PUBLISHED:
        there = ", ".join(PUBLISHED)
        raise ValueError(f"no variant {variant!r}, there are: {there}, with _small or _tiny")
    config = cifar10_two_stage.get_config(size)
    config.search.method = method
    if not size:
        batch, epochs, first, last = PUBLISHED[method]
        config.search.update({"batch": batch, "epochs": epochs})
        config.search.weights = paper.sgd(first, final_learning_rate=last)
    elif size == "tiny":
        methods.small(config.search, 1e-2)
    return config
