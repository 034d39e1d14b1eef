"""The LASSO against scikit-learn in float64, the KKT conditions in float64, and a naive loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from istanas_jax.bench.recovery import oracle, top2
from istanas_jax.space.spaces import DARTS
from istanas_jax.sparse_coding import lasso
from istanas_jax.sparse_coding.lasso import solve_lasso

LAM = 1e-5
solve = jax.jit(jax.vmap(lambda A, b: solve_lasso(A, b, LAM)))


def problems(seed: int, count: int, scale: float, n: int):
    rng = np.random.default_rng(seed)
    A = rng.random((count, 7, n)).astype(np.float32)
    return A, (scale * rng.standard_normal((count, 7))).astype(np.float32)


def kkt_float64(A, b, z) -> float:
    A, b, z = (np.asarray(x, np.float64) for x in (A, b, z))
    correlation = A.T @ (b - A @ z) / float(np.float32(LAM))
    inactive = np.maximum(np.abs(correlation) - 1, 0)
    return np.where(z != 0, np.abs(correlation - np.sign(z)), inactive).max()


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-3, 1e-2, 1e-1, 1.0])
@pytest.mark.parametrize("node", range(4))
def test_equals_scikit_learn(scale, node):
    n = DARTS.num_candidates(node)
    A, b = problems(node, 25, scale, n)
    code = jax.tree.map(np.asarray, solve(A, b))
    assert code.converged.all()
    for A_i, b_i, z in zip(A, b, code.z, strict=True):
        answer = oracle(A_i, b_i, LAM)
        # Polished on the right active set, z is float32-exact; the slack is for the oracle.
        np.testing.assert_allclose(z, answer, atol=1e-5 * np.abs(answer).max(), rtol=0)
        assert np.array_equal(top2(z), top2(answer))


@pytest.mark.parametrize("scale", [1e-3, 1e-2, 1e-1, 1.0])
def test_certificate_is_the_truth(scale):
    """`kkt` is the residual of the returned z, though evaluated in float32."""
    A, b = problems(7, 50, scale, 35)
    code = solve(A, b)
    truth = [kkt_float64(*problem) for problem in zip(A, b, code.z, strict=True)]
    np.testing.assert_allclose(code.kkt, truth, atol=1e-5)  # a thousandth of the tolerance


@pytest.mark.slow
def test_equals_a_naive_loop():
    """Plain ISTA in float64, as the paper writes it, until it stands still."""
    lam = 3e-4  # with the paper's 1e-5 plain ISTA would take millions of steps
    A, b = problems(3, 4, 1e-3, 14)
    for A_i, b_i in zip(A.astype(np.float64), b.astype(np.float64), strict=True):
        L = np.linalg.eigvalsh(A_i.T @ A_i).max()
        z, step = np.zeros(14), np.ones(14)
        while np.abs(step).max() > 1e-11:
            moved = z - A_i.T @ (A_i @ z - b_i) / L
            moved = np.sign(moved) * np.maximum(np.abs(moved) - lam / L, 0)
            z, step = moved, moved - z
        ours = solve_lasso(A_i.astype(np.float32), b_i.astype(np.float32), lam).z
        # Steps of 1e-11 that shrink by about 1e-4 of themselves still add up to 1e-7.
        np.testing.assert_allclose(ours, z, atol=1e-4 * np.abs(z).max(), rtol=0)


@pytest.mark.slow
def test_start_does_not_change_the_answer():
    A, b = problems(5, 20, 1e-2, 28)
    z0 = np.random.default_rng(0).standard_normal((20, 28)).astype(np.float32)
    warm = jax.jit(jax.vmap(lambda A, b, z0: solve_lasso(A, b, LAM, z0=z0).z))(A, b, z0)
    cold = solve(A, b).z
    np.testing.assert_allclose(warm, cold, atol=1e-6 * np.abs(cold).max())


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), [(28, 14), (28, 28), (28, 35)])
def test_as_many_rows_as_wanted(m, n):
    """Without compression, too, z is that of scikit-learn."""
    rng = np.random.default_rng(m + n)
    A = rng.standard_normal((10, m, n)).astype(np.float32)
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    b = (1e-2 * rng.standard_normal((10, m))).astype(np.float32)
    code = solve(A, b)
    assert code.converged.all()
    for place, z in enumerate(np.asarray(code.z)):
        answer = oracle(A[place], b[place], LAM)
        np.testing.assert_allclose(z, answer, atol=1e-5 * np.abs(answer).max(), rtol=0)


@pytest.mark.slow
def test_padding_changes_nothing():
    A, b = problems(6, 10, 1e-2, 14)
    padded = np.concatenate([A, np.zeros((10, 7, 21), np.float32)], -1)
    wide, narrow = solve(padded, b).z, solve(A, b).z
    np.testing.assert_allclose(wide[:, :14], narrow, atol=1e-7)
    assert not wide[:, 14:].any()


def test_zero_b_gives_zero_z():
    A, _ = problems(0, 1, 1.0, 14)
    code = solve_lasso(A[0], np.zeros(7, np.float32), LAM)
    assert not code.z.any()
    assert code.converged


def test_huge_lambda_gives_zero_z():
    A, b = problems(0, 1, 1e-3, 14)
    code = solve_lasso(A[0], b[0], 1.0)
    assert not code.z.any()
    assert code.converged


def test_uncertified_is_said(monkeypatch):
    """Without pivots, 50 proximal steps do not solve the problem, and `converged` says so."""
    A, b = problems(1, 1, 1e-1, 35)
    monkeypatch.setattr("istanas_jax.sparse_coding.active_set.MAX_PIVOTS", 0)
    code = solve_lasso(A[0], b[0], LAM)
    assert not code.converged
    assert code.kkt > 0.1


def test_nan_inside_jit_is_not_converged():
    A, b = problems(1, 2, 1e-2, 14)
    b[1, 3] = np.nan
    assert solve(A, b).converged.tolist() == [True, False]


@pytest.mark.parametrize(
    ("A", "b", "lam", "sentence"),
    [
        (np.ones((7, 14)), np.ones(7), 0.0, "lambda must be positive"),
        (np.ones((7, 14)), np.ones(7), -1e-5, "lambda must be positive"),
        (np.ones((7, 14)), np.full(7, np.nan), LAM, "b contains NaN"),
        (np.full((7, 14), np.inf), np.ones(7), LAM, "A contains NaN or infinity"),
        (np.ones((7, 14)), np.ones(6), LAM, "b has 6 entries"),
    ],
)
def test_bad_problems_are_refused(A, b, lam, sentence):
    with pytest.raises(ValueError, match=sentence):
        solve_lasso(A.astype(np.float32), b.astype(np.float32), lam)


def test_top_support_order_and_ties():
    z = jnp.array([0.5, -2.0, 1.0, 2.0, -1.0])
    assert lasso.top_support(z, 3).tolist() == [1, 3, 2]
    with pytest.raises(ValueError, match="s = 6 connections cannot be chosen from n = 5"):
        lasso.top_support(z, 6)


def test_soft_threshold():
    x = jnp.array([-3.0, -1.0, 0.5, 2.0])
    assert lasso.soft_threshold(x, 1.0).tolist() == [-2.0, 0.0, 0.0, 1.0]


def test_measurement_matrices():
    A = np.asarray(lasso.sample_measurement_matrices(jax.random.key(0), DARTS, 7))
    assert A.shape == (2, 4, 7, 35)
    assert A.min() == 0
    assert A.max() < 1
    for node, n in enumerate((14, 21, 28, 35)):
        assert (A[:, node, :, :n] > 0).all()
        assert not A[:, node, :, n:].any()
    with pytest.raises(ValueError, match="m = 0 must be at least 1"):
        lasso.sample_measurement_matrices(jax.random.key(0), DARTS, 0)


def test_columns_on_the_sphere():
    """Columns have length 1 and nearly every direction: their mean is short."""
    A = lasso.sample_measurement_matrices(jax.random.key(0), DARTS, 28, columns="sphere")
    for node, n in enumerate((14, 21, 28, 35)):
        np.testing.assert_allclose(np.linalg.norm(A[:, node, :, :n], axis=1), 1, atol=1e-6)
        assert not np.asarray(A[:, node, :, n:]).any()
    assert np.linalg.norm(np.asarray(A[0, 3]).mean(1)) < 0.4  # 1 / sqrt(35) expected; uniform: 0.9


def test_top_support_signed_distinct_and_padded():
    z = jnp.zeros(21).at[jnp.array([0, 3, 8, 14])].set(jnp.array([-3.0, 2.0, 1.0, 1.5]))
    assert lasso.top_support(z, 2).tolist() == [0, 3]
    assert lasso.top_support(z, 2, signed=True).tolist() == [3, 14]
    assert lasso.top_support(z, 3, signed=True, distinct=True).tolist() == [3, 14, 8]
    assert lasso.top_support(z, 2, distinct=True).tolist() == [0, 14]
    negative, exists = -jnp.arange(1.0, 22), jnp.arange(21) < 14
    found = lasso.top_support(jnp.where(exists, negative, 0), 2, signed=True, exists=exists)
    assert found.tolist() == [0, 1]  # and not the zeros of the padding


@pytest.mark.slow
def test_gradient_through_z_against_finite_differences():
    """dz/db by implicit differentiation; differences in float64 from scikit-learn's answers."""
    A, b = problems(11, 3, 1e-2, 21)
    for A_i, b_i in zip(A, b, strict=True):
        jacobian = jax.jacrev(lambda b, A=A_i: solve_lasso(A, b, LAM).z)(b_i)
        h = 1e-6  # small against b, so that no entry of z becomes or ceases to be 0
        for k in range(7):
            up, down = b_i.astype(np.float64), b_i.astype(np.float64)
            up[k] += h
            down[k] -= h
            slope = (oracle(A_i, up, LAM) - oracle(A_i, down, LAM)) / (2 * h)
            # float32 LU of matrices with condition numbers up to about 1e3
            np.testing.assert_allclose(jacobian[:, k], slope, atol=1e-3 * np.abs(slope).max())
