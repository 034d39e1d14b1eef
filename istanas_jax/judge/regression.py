"""How good a cell probably is, by cells that others have trained.

A ridge regression, fitted to the 10,307 cells of NAS-Bench-301 (Siems et al., 2020): each was
trained on CIFAR-10 with 8 cells, 32 channels and 100 epochs. It sees which operation reads which
predecessor at which node, how often each operation occurs in a cell, and the products of these
counts; `fit` fits it and says how well it ranks cells that it has not seen.

It knows cells of 4 nodes with 2 connections each and the 7 operations of DARTS, and it knows
CIFAR-10. It cannot judge a collapse: almost no trained cell had as many connections without
weights as a collapsed search ends with, so the verdict on such cells carries a warning.
"""

import bisect
import functools
import json
from collections.abc import Mapping
from importlib import resources
from itertools import combinations_with_replacement
from typing import NamedTuple

from istanas_jax.space.genotype import Genotype, Support
from istanas_jax.space.spaces import DARTS

NODES, S = DARTS.nodes, DARTS.s
COLLAPSED = 6  # connections without weights in a normal cell that deserve a warning
FILE = "coefficients.json"


class Verdict(NamedTuple):
    """What the regression makes of a cell pair."""

    accuracy: float  # predicted, in percent, of CIFAR-10 validation images
    percentile: float  # random cells of the space that are predicted to do worse, in percent
    weight_free: tuple[int, int]  # pools and skip-connections of the normal and the reduction cell
    warning: str | None  # why the prediction should not be trusted


def judge(genotype: Genotype) -> Verdict:
    """Predicted accuracy and percentile; a ValueError says why a genotype cannot be judged.

    >>> from istanas_jax.space import genotype
    >>> round(judge(genotype.load("PC_DARTS_cifar")).percentile)
    100
    """
    if reason := why_not(genotype):
        raise ValueError(reason)
    return judge_supports(genotype.supports())


def why_not(genotype: Genotype) -> str | None:
    """Why the judge does not know cells of this kind; None if it does."""
    cells = (genotype.normal, genotype.reduce)
    sizes = {(len(cell), len(node)) for cell in cells for node in cell}
    if sizes != {(NODES, S)}:
        return f"only cells of {NODES} nodes with {S} connections each can be judged"
    names = {c.operation for cell in cells for n in cell for c in n}
    if unknown := sorted(names - set(DARTS.operations)):
        return f"cells with {', '.join(unknown)} cannot be judged: no trained cell had it"
    return None


def judge_supports(supports: tuple[Support, Support]) -> Verdict:
    """The verdict about two cells given as flat indices, as a search has them."""
    model = coefficients()
    weights = model["weights"]
    accuracy = model["intercept"] + sum(
        weights[place] * value for place, value in features(supports).items()
    )
    quantiles = model["random_quantiles"]
    below = bisect.bisect_left(quantiles, accuracy) / (len(quantiles) - 1)
    free = DARTS.weight_free(supports[0]), DARTS.weight_free(supports[1])
    return Verdict(accuracy, 100 * min(below, 1.0), free, _warning(supports[0], free[0], model))


def skips(cell: Support) -> int:
    """How many connections of a cell are skip-connections."""
    return sum(DARTS.connection(flat).operation == "skip_connect" for node in cell for flat in node)


def _warning(normal: Support, free: int, model: Mapping) -> str | None:
    of = f"of {NODES * S} connections of the normal cell"
    if free >= COLLAPSED:
        return f"{free} {of} have no weights: a collapsed search looks like this"
    if (count := skips(normal)) > model["most_skips"]:
        return f"{count} {of} are skip-connections: too few such cells were trained to judge it"
    return None


def features(supports: tuple[Support, Support]) -> dict[int, float]:
    """The features that are not 0, by their place in the vector of `num_features`."""
    longest, pairs = DARTS.max_candidates, _pairs()
    size = NODES * longest + DARTS.num_ops + len(pairs)  # of one cell
    found: dict[int, float] = {}
    for cell, support in enumerate(supports):
        start = cell * size
        counts = [0] * DARTS.num_ops
        for node, picks in enumerate(support):
            for flat in map(int, picks):
                place = start + node * longest + flat
                found[place] = found.get(place, 0) + 1
                counts[flat % DARTS.num_ops] += 1
        start += NODES * longest
        found |= {start + op: count for op, count in enumerate(counts)}
        start += DARTS.num_ops
        found |= {start + n: counts[a] * counts[b] for n, (a, b) in enumerate(pairs)}
    return found


def num_features() -> int:
    return 2 * (NODES * DARTS.max_candidates + DARTS.num_ops + len(_pairs()))


def _pairs() -> list[tuple[int, int]]:
    return list(combinations_with_replacement(range(DARTS.num_ops), 2))


@functools.cache
def coefficients() -> dict:
    """What `fit` wrote: weights, quantiles of random cells, and its own accuracy."""
    model = json.loads(resources.files("istanas_jax.judge").joinpath(FILE).read_text())
    weights = [0.0] * num_features()
    for place, value in model["weights"]:
        weights[place] = value
    return model | {"weights": weights}
