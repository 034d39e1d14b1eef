"""Kendall's tau against scipy and a naive count, and its bootstrap interval."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from istanas_jax.studies.stats import correlate

few = st.integers(0, 4)  # so that there are ties


@settings(deadline=None)
@given(st.lists(st.tuples(few, few), min_size=3, max_size=12))
def test_tau_is_that_of_scipy_and_of_a_naive_count(pairs):
    x, y = zip(*pairs, strict=True)
    found = correlate(x, y, resamples=20)
    expected = scipy_stats.kendalltau(x, y)
    if math.isnan(expected.statistic):
        assert found.tau is None
        assert found.words == "all accuracies are equal: there is no order"
        return
    assert found.tau == pytest.approx(expected.statistic, abs=1e-12)
    assert found.p == expected.pvalue or math.isnan(expected.pvalue)
    naive = sum(
        np.sign(a[0] - b[0]) * np.sign(a[1] - b[1]) for a, b in itertools.combinations(pairs, 2)
    )
    assert found.tau_a == pytest.approx(naive / math.comb(len(pairs), 2), abs=1e-12)
    if found.low is not None:
        assert -1 - 1e-12 <= found.low <= found.high <= 1 + 1e-12


def test_bootstrap_interval():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    y = x + rng.normal(size=40)
    found, again = (correlate(x, y, resamples=500, seed=1) for _ in range(2))
    assert found == again
    assert found.low < found.tau < found.high
    taus = []  # the same by scipy, one resample after the other
    for chosen in np.random.default_rng(1).integers(0, 40, (500, 40)):
        taus.append(scipy_stats.kendalltau(x[chosen], y[chosen]).statistic)
    np.testing.assert_allclose((found.low, found.high), np.percentile(taus, [2.5, 97.5]))


def test_what_cannot_be_told_is_said():
    assert correlate([1, 2], [1, 2], resamples=10).tau is None
    assert "too few seeds for a tau: 2" in correlate([1, 2], [1, 2], resamples=10).words
    four = correlate([1, 2, 3, 4], [1, 3, 2, 4], resamples=2000)
    assert "4 seeds cannot tell any tau from 0" in four.words
    assert "of 2000 resamples drew equal accuracies only" in four.words
    assert correlate(range(9), range(9), resamples=200).words == ""
