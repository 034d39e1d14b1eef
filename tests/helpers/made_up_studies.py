"""Folders of made-up runs: what a driver would leave is written at once."""

import json
from dataclasses import replace

from istanas_jax.space.genotype import random_genotype
from istanas_jax.space.spaces import DARTS


def genotype(seed=0):
    return random_genotype(seed, replace(DARTS, nodes=2)).to_dict()


def leave(folder, config, **files):
    folder.mkdir(parents=True, exist_ok=True)
    plain = json.loads(config.to_json_best_effort())
    for name, value in (files | {"config": plain, "started": {"commit": "abc"}}).items():
        (folder / f"{name}.json").write_text(json.dumps(value))


def result_of(config, accuracy, *, seeds, searches=0):
    return {
        "test_accuracies": [accuracy] * seeds,
        "test_accuracy": accuracy,
        "test_accuracy_deviation": None,
        "test_top5_accuracy": 0.9,
        "seeds": list(range(config.seed, config.seed + seeds)),
        "parameters": 1000 + config.seed,
        "genotype": genotype(config.seed),
        "search": [{}] * searches,
        "seconds": {"search": {"total": 60.0}, "retrain": {"total": 120.0}},
    }


def text(folder):
    return (folder / "study.md").read_text()
