"""Is the recovery of z exact, and how long does it take?

Random problems of all four sizes at four scales of b are solved and compared with scikit-learn's
Lasso in float64; then whole architectures are recovered, cold and after a small move of b.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.linear_model import Lasso, lars_path

from istanas_jax.space.spaces import DARTS
from istanas_jax.sparse_coding import lasso
from istanas_jax.sparse_coding.architecture import ArchState, Coding, init_architecture, recover

SCALES = (1e-3, 1e-2, 1e-1, 1.0)
M = 7
LAM = 1e-5
CODING = Coding(m=M, lam=LAM)
# One step of the paper's Adam moves each entry of b by about its learning rate.
SMALL_MOVE = 6e-4


def run(problems: int = 1000, seed: int = 0) -> dict:
    """Solve `problems` LASSOs per scale, time recoveries, and return the results."""
    rng = np.random.default_rng(seed)
    return {
        "benchmark": "recovery",
        "problems_per_scale": problems,
        "seed": seed,
        "lambda": LAM,
        "platform": jax.default_backend(),
        "scales": {f"{scale:g}": _exactness(rng, scale, problems) for scale in SCALES},
        "whole_architecture": {f"{scale:g}": _timing(rng, scale) for scale in SCALES},
    }


@jax.jit
@jax.vmap
def _solve(A, b):
    return lasso.solve_lasso(A, b, LAM)


@jax.jit
def _init(key) -> ArchState:
    return init_architecture(key, CODING, sigma=1e-3).arch


@jax.jit
def _recover(arch: ArchState):
    recovery = recover(arch, CODING)
    return recovery.arch, recovery.certified


def _exactness(rng, scale: float, problems: int) -> dict:
    n = DARTS.max_candidates
    sizes = [DARTS.num_candidates(i % DARTS.nodes) for i in range(problems)]
    A = np.zeros((problems, M, n), np.float32)
    for i, size in enumerate(sizes):
        A[i, :, :size] = rng.random((M, size))
    b = (scale * rng.standard_normal((problems, M))).astype(np.float32)
    code = jax.tree.map(np.asarray, _solve(A, b))

    agreeing = ambiguous = 0
    error = 0.0
    for i, size in enumerate(sizes):
        answer = oracle(A[i, :, :size], b[i], LAM)
        largest = np.sort(np.abs(answer))[::-1]
        error = max(error, np.abs(code.z[i, :size] - answer).max() / largest[0])
        if largest[1] - largest[2] <= 1e-6 * largest[0]:
            ambiguous += 1
        else:
            agreeing += np.array_equal(top2(code.z[i]), top2(answer))
    return {
        "support_agrees": int(agreeing),
        "compared": problems - ambiguous,
        "converged": int(code.converged.sum()),
        "worst_z_relative_error": float(error),
        "worst_kkt_over_lambda": float(code.kkt.max()),
        "median_kkt_over_lambda": float(np.median(code.kkt)),
        "iterations_mean": float(code.iterations.mean()),
        "iterations_max": int(code.iterations.max()),
    }


def top2(z: np.ndarray) -> np.ndarray:
    return np.argsort(-np.abs(z), kind="stable")[:2]


def oracle(A: np.ndarray, b: np.ndarray, lam: float) -> np.ndarray:
    """scikit-learn's answer in float64: coordinate descent, started at the end of its LARS path.

    scikit-learn divides the squared error by the number of rows, so lambda is divided as well.
    """
    A, b = A.astype(np.float64), b.astype(np.float64)
    alpha = lam / len(b)
    path = lars_path(A, b, alpha_min=alpha, method="lasso")[2]
    model = Lasso(alpha, fit_intercept=False, warm_start=True, tol=1e-13, max_iter=100_000)
    model.coef_ = path[:, -1].copy()
    return model.fit(A, b).coef_


def _timing(rng, scale: float, repeats: int = 50) -> dict:
    """Microseconds to recover all nodes of both cell types, from z = 0 and from a near z."""
    arch = _init(jax.random.key(int(rng.integers(2**31))))
    cold, warm, certified = [], [], True
    jax.block_until_ready(_recover(arch))
    for _ in range(repeats):
        arch = arch.replace(b=jnp.asarray(scale * rng.standard_normal(arch.b.shape), jnp.float32))
        start = time.perf_counter()
        arch, ok = jax.block_until_ready(_recover(arch.replace(z=jnp.zeros_like(arch.z))))
        cold.append(time.perf_counter() - start)
        certified &= bool(ok)
        move = SMALL_MOVE * rng.standard_normal(arch.b.shape)
        arch = arch.replace(b=arch.b + jnp.asarray(move, jnp.float32))
        start = time.perf_counter()
        arch, ok = jax.block_until_ready(_recover(arch))
        warm.append(time.perf_counter() - start)
        certified &= bool(ok)
    return {
        "cold_us": round(1e6 * float(np.median(cold))),
        "warm_us": round(1e6 * float(np.median(warm))),
        "all_certified": certified,
    }


def table(results: dict) -> str:
    """Format the results as text for people."""
    lines = [
        f"LASSO recovery against scikit-learn in float64, {results['problems_per_scale']} problems "
        f"per scale, lambda {results['lambda']:g}, float32 on {results['platform']}",
        "",
        "b scale  top-2 agrees  certified  worst z error  worst KKT/lambda  steps   cold     warm",
    ]
    for scale, row in results["scales"].items():
        time_row = results["whole_architecture"][scale]
        lines.append(
            f"{scale:>7}  {row['support_agrees']:>5}/{row['compared']:<6}  {row['converged']:>9}"
            f"  {row['worst_z_relative_error']:>13.1e}  {row['worst_kkt_over_lambda']:>16.1e}"
            f"  {row['iterations_mean']:>5.0f}  {time_row['cold_us'] / 1000:>5.2f} ms"
            f"  {time_row['warm_us'] / 1000:>4.2f} ms"
        )
    lines.append("")
    lines.append(
        "cold, warm: all 8 nodes of an architecture, from z = 0 and after a small move of b"
    )
    return "\n".join(lines)
