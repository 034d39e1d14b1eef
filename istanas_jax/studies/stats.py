"""Rank correlation with its uncertainty, and means over seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

FEWEST = 3  # seeds of which a tau is told: two are always in the same or in opposite order
TELLING = 5  # with fewer pairs even a tau of 1 proves nothing: 2 / 4! is above 5 %


@dataclass(frozen=True)
class Correlation:
    """Kendall's tau of pairs; what cannot be computed is None, and `words` say why."""

    n: int
    tau: float | None = None  # tau-b: ties leave the denominator
    tau_a: float | None = None  # the paper's formula: a tie counts 0, all pairs are counted
    p: float | None = None  # probability of a tau so far from 0 without correlation
    low: float | None = None
    high: float | None = None
    words: str = ""


def correlate(
    x: Sequence[float], y: Sequence[float], *, resamples: int, level: float = 0.95, seed: int = 0
) -> Correlation:
    """Kendall's tau of x and y with a percentile bootstrap interval over the pairs."""
    n = len(x)
    if n < FEWEST:
        return Correlation(n, words=f"too few seeds for a tau: {n}, and {FEWEST} are the least")
    signs = _signs(x), _signs(y)
    everyone = np.arange(n)[None]
    tau = float(_tau_b(*signs, everyone)[0])
    if np.isnan(tau):
        return Correlation(n, words="all accuracies are equal: there is no order")
    # Each pair is in the matrix of signs twice.
    tau_a = float((signs[0] * signs[1]).sum() / (n * (n - 1)))
    chosen = np.random.default_rng(seed).integers(0, n, (resamples, n))
    taus = _tau_b(*signs, chosen)
    left_out = int(np.isnan(taus).sum())
    low = high = None
    if left_out < resamples:
        outside = 100 * (1 - level) / 2
        low, high = np.nanpercentile(taus, [outside, 100 - outside]).tolist()
    words = []
    if left_out:
        words.append(
            f"{left_out} of {resamples} resamples drew equal accuracies only, have no tau and are "
            "left out"
        )
    if n < TELLING:
        words.append(f"{n} seeds cannot tell any tau from 0")
    p = float(stats.kendalltau(x, y).pvalue)
    return Correlation(n, tau, tau_a, p, low, high, "; ".join(words))


def _signs(values: Sequence[float]) -> Int[np.ndarray, "n n"]:
    """sign(x_i - x_j), as in the paper's supplement."""
    values = np.asarray(values, float)
    return np.sign(values[:, None] - values[None]).astype(int)


def _tau_b(
    x: Int[np.ndarray, "n n"], y: Int[np.ndarray, "n n"], chosen: Int[np.ndarray, "r n"]
) -> Float[np.ndarray, " r"]:
    """Tau-b of each row of chosen pairs; NaN where all x or all y are equal."""
    rows, columns = chosen[:, :, None], chosen[:, None, :]
    x, y = x[rows, columns], y[rows, columns]
    numerator = (x * y).sum((1, 2))
    denominator = np.sqrt((x * x).sum((1, 2)) * (y * y).sum((1, 2)).astype(float))
    defined = denominator > 0
    return np.where(defined, numerator / np.where(defined, denominator, 1), np.nan)


def mean_and_deviation(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and sample deviation; None where there is none."""
    if not values:
        return None, None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def mean_interval(
    values: Sequence[float], *, resamples: int, level: float = 0.95, seed: int = 0
) -> tuple[float | None, float | None]:
    """The percentile bootstrap interval of the mean; None if there are too few values."""
    if len(values) < 2:
        return None, None
    found = stats.bootstrap(
        (np.asarray(values, float),),
        np.mean,
        n_resamples=resamples,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = found.confidence_interval
    return float(low), float(high)


@dataclass(frozen=True)
class Difference:
    """How far apart the means of two groups are; None where a group has fewer than two values."""

    difference: float | None = None
    standard_error: float | None = None  # Welch: each group has a variance of its own


def mean_difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """The mean of the first group minus that of the second."""
    if min(len(first), len(second)) < 2:
        return Difference()
    variance = sum(statistics.variance(group) / len(group) for group in (first, second))
    return Difference(statistics.fmean(first) - statistics.fmean(second), variance**0.5)
