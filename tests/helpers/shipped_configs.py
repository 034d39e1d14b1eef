"""All configs that come with the project."""

import functools

from ml_collections import ConfigDict
from places import ROOT

from istanas_jax.config.files import load_config
from istanas_jax.methods import METHODS

FOLDER = ROOT / "configs"
FOR_TPUS = (
    "cifar10_one_stage",
    "cifar10_retrain",
    "cifar10_two_stage",
    "imagenet_one_stage",
    "imagenet_retrain",
)
VARIANTS = {
    "baselines": ["darts_tiny", *(method for method in METHODS if method != "ista")],
    **{name: ["", "tiny", "tpu"] for name in FOR_TPUS},
    "digits": ["", "tiny", "one_stage", "one_stage_tiny"],
    "study": [
        "cost",
        "correlation",
        "accuracy",
        "suite",
        "curves",
        "quality",
        "accuracy_imagenet",
        "curves_small",
        "suite_small",
    ],
}
SHARED = ("__init__", "paper", "methods")  # by the configs


@functools.cache
def shipped() -> dict[str, ConfigDict]:
    specs = [
        f"{path}:{variant}" if variant else str(path)
        for path in sorted(FOLDER.glob("*.py"))
        if path.stem not in SHARED
        for variant in VARIANTS.get(path.stem, ["", "tiny"])
    ]
    return {spec: load_config(spec) for spec in specs}


def numbers_in(value) -> list:
    if isinstance(value, tuple | list):
        return [number for item in value for number in numbers_in(item)]
    return [value] if isinstance(value, int | float) else []
