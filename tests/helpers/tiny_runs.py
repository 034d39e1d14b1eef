"""Two-stage runs on a few digits with the smallest nets, for tests of what becomes of them."""

import json
from dataclasses import replace

import numpy as np
from places import ROOT
from tiny_space import TINY_SPACE

from istanas_jax.config.files import load_config
from istanas_jax.schedules.nets import target_net
from istanas_jax.space.genotype import random_genotype
from istanas_jax.space.spaces import DARTS

# What the configs for a CPU have of their own, taken away: Algorithm 1 as it is published.
PAPER = [
    "search.ista.m=7",
    "search.ista.columns=uniform",
    "search.ista.signed=False",
    "search.ista.distinct=False",
    "search.ista.explore.draw=False",
    "search.ista.explore.shared_weights=False",
    "search.ista.explore.compare=False",
    "search.ista.explore.one_loss=False",
    "search.ista.explore.warmup_epochs=0",
]
SMALL = [
    *PAPER,
    *TINY_SPACE,
    "search.cells=1",
    "train.cells=1",
    "search.epochs=3",
    "train.epochs=1",
    "data.max_images=140",
    # Given, so that most tests compile the same programs.
    "data.mean=(0.3,)",
    "data.std=(0.4,)",
    "search.ista.adam.learning_rate=0.02",
]


def tiny(*overrides):
    spec = str(ROOT / "configs" / "digits.py:tiny")
    small = small_beside(overrides)
    return load_config(spec, [f"--config.{override}" for override in [*small, *overrides]])


def small_beside(overrides):
    """What makes a run tiny, with all operations of the space that the overrides name."""
    named = any(o.startswith(("space.name=", "space.operations=")) for o in overrides)
    return [o for o in SMALL if not (named and o.startswith("space.operations="))]


def two_nodes(session):
    return target_net(session.config, session.config.train, session.dataset)


def rows(workdir, name="metrics.jsonl"):
    return [json.loads(line) for line in (workdir / name).read_text().splitlines()]


def timeless(workdir):
    return [row | {"seconds": 0, "images_per_second": 0} for row in rows(workdir)]


def fake_run(number, session, accuracies, genotypes=None):
    """What a search gives, in place of `TwoStageSearch.run`."""
    genotype = genotypes[number] if genotypes else random_genotype(number, replace(DARTS, nodes=2))
    return {
        "seed": number,
        "genotype": genotype.to_dict(),
        "accuracy_of": "b",
        "accuracy": accuracies[number],
        "coefficients": np.ones((2, 2, 2)).tolist(),
        "seconds": {"total": 1.0},
    }
