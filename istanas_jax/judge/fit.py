"""Fit the judge to cells that were trained, and say how well it ranks cells it has not seen.

The file of cells is a JSON list of `{"normal": [[operation, predecessor] x 8], "reduce": [...],
"acc": percent}`. Only the fitted coefficients are part of the package.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable

import numpy as np
from scipy.stats import spearmanr

from istanas_jax.judge import regression
from istanas_jax.space.connections import Connection
from istanas_jax.space.genotype import FIELDS, Support, random_genotype
from istanas_jax.space.spaces import DARTS
from istanas_jax.storage.files import write_whole

RIDGE = 10.0  # added to the normal equations; 1 to 30 rank unseen cells equally well
FOLDS = 5
RANDOM_CELLS = 20_000
QUANTILES = 1_000
FEWEST = 50  # trained cells that make a number of skip-connections known


def fit(cells_file: str | os.PathLike, out: str | os.PathLike) -> dict:
    """Fit and write the coefficients; return how well they rank cells left out of the fit."""
    with open(cells_file) as file:
        cells = json.load(file)
    supports = [_supports(cell) for cell in cells]
    x, y = _matrix(supports), np.array([cell["acc"] for cell in cells])
    held_out = cross_validate(x, y)
    intercept, weights = ridge(x, y)
    drawn = [random_genotype(seed).supports() for seed in range(RANDOM_CELLS)]
    predicted = intercept + _matrix(drawn) @ weights
    quantiles = np.quantile(predicted, np.linspace(0, 1, QUANTILES + 1))
    model = {
        "source": "ridge regression on the trained cells of NAS-Bench-301",
        "cells": len(cells),
        "held_out": held_out,
        "intercept": round(float(intercept), 5),
        "most_skips": _most(regression.skips(support[0]) for support in supports),
        "weights": [[int(i), round(float(weights[i]), 5)] for i in np.flatnonzero(x.any(0))],
        "random_quantiles": [round(float(q), 4) for q in quantiles],
    }
    write_whole(out, (json.dumps(model) + "\n").encode())
    return held_out


def table(held_out: dict) -> str:
    return (
        f"on cells left out, mean of {held_out['folds']} folds: Spearman "
        f"{held_out['spearman']:.4f}, mean absolute error {held_out['mean_absolute_error']:.4f} "
        "points"
    )


def ridge(x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Intercept and weights that minimise the squared error plus RIDGE times their squares."""
    mean = x.mean(0)
    centred = x - mean
    gram = centred.T @ centred + RIDGE * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, centred.T @ (y - y.mean()))
    return y.mean() - mean @ weights, weights


def cross_validate(x: np.ndarray, y: np.ndarray, seed: int = 0) -> dict[str, float]:
    """Rank correlation and mean absolute error on folds that were left out, averaged."""
    fold = np.random.default_rng(seed).permutation(len(y)) % FOLDS
    ranks, errors = [], []
    for left_out in range(FOLDS):
        seen, unseen = fold != left_out, fold == left_out
        intercept, weights = ridge(x[seen], y[seen])
        predicted = intercept + x[unseen] @ weights
        ranks.append(spearmanr(predicted, y[unseen]).statistic)
        errors.append(np.abs(predicted - y[unseen]).mean())
    return {
        "spearman": round(float(np.mean(ranks)), 4),
        "mean_absolute_error": round(float(np.mean(errors)), 4),
        "folds": FOLDS,
    }


def _supports(cell: dict) -> tuple[Support, Support]:
    flat = [[DARTS.flat(Connection(*pair)) for pair in cell[field]] for field in FIELDS]
    normal, reduce = (tuple(zip(picks[::2], picks[1::2], strict=True)) for picks in flat)
    return normal, reduce


def _matrix(supports: list[tuple[Support, Support]]) -> np.ndarray:
    x = np.zeros((len(supports), regression.num_features()))
    for row, support in enumerate(supports):
        found = regression.features(support)
        x[row, list(found)] = list(found.values())
    return x


def _most(counts: Iterable[int]) -> int:
    """The largest count that so many trained cells reached that it is known."""
    reached = Counter(counts)
    return max(n for n in reached if sum(v for k, v in reached.items() if k >= n) >= FEWEST)
