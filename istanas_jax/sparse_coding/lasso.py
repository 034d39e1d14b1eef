"""Sparse coding of one node: measurement matrices, and the LASSO that recovers z from b (Eq. z).

    z = argmin_z 1/2 ||A z - b||² + lambda ||z||_1,    A in R^(m x n)

The problems are tiny, but the s largest entries of z become the architecture, so a nearly solved
problem is not good enough. The solution is found in three parts, all inside jit, in float32, on
any device:

1. accelerated proximal gradient (ISTA with momentum; jaxopt iterates), started at the previous z,
   finds roughly which entries are active;
2. pivots of an active-set method go from there to the exact active set. Proximal gradient alone
   would need about 2,400 iterations at b ~ 1e-3 and 19,000 at b ~ 0.1;
3. a certificate: the KKT residual of the returned z, evaluated with error-free sums and products,
   because in plain float32 the rounding of b - A z exceeds 1e-2 lambda once b ~ 0.1.

Only this file imports jaxopt, which announces at import that it is no longer developed.
"""

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from istanas_jax.space.spaces import DARTS, Space
from istanas_jax.sparse_coding.active_set import find_active_set, kkt_residual, polish

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import jaxopt
    from jaxopt.linear_solve import solve_lu

# A solution is certified when its KKT conditions hold to this fraction of lambda, plus what the
# rounding of z to float32 alone may cost: at most 1e-3 for b ~ 1e-3, 1e-2 for b ~ 0.1, 1e-1 for
# b ~ 1 (`kkt_residual`; `bench recovery` prints the worst residuals measured).
KKT_TOLERANCE = 1e-2
# More would save pivots, fewer would save iterations: 50 is the fastest in sum, cold and warm.
PROXIMAL_STEPS = 50


class SparseCode(NamedTuple):
    """The solution of a LASSO and what is known about it."""

    z: Float[Array, "*batch n"]
    converged: Bool[Array, "*batch"]  # certified, see KKT_TOLERANCE
    iterations: Int[Array, "*batch"]  # proximal-gradient steps plus pivots
    kkt: Float[Array, "*batch"]  # largest violation of the KKT conditions, relative to lambda


def sample_measurement_matrices(
    key: jax.Array, space: Space, m: int, num_cell_types: int = 2, columns: str = "uniform"
) -> Float[Array, "cells nodes m n"]:
    """Draw A for every node of every cell type, once per run.

    Node j has n_j columns; the matrices are padded with zero columns to the n of the last node, and
    what is no candidate has a zero column too. A node with n_j <= m is not compressed: its z is
    known from b.

    Args:
      columns: "uniform", entries from U[0, 1), or "sphere", columns spread evenly over the unit
        sphere. Uniform columns all point into one corner, so they are hard to tell apart.
    """
    if m < 1:
        raise ValueError(f"m = {m} must be at least 1")
    shape = (num_cell_types, space.nodes, m, space.max_candidates)
    if columns == "sphere":
        A = jax.random.normal(key, shape)
        A /= jnp.linalg.norm(A, axis=-2, keepdims=True)
    else:
        A = jax.random.uniform(key, shape)
    cells = space.exists if space.candidates else space.exists[:1]
    return jnp.where(np.array(cells)[:, :, None, :], A, 0)


def residual_matrix(A: Float[Array, "*batch m n"]) -> Float[Array, "*batch n n"]:
    """E = AᵀA - I, the residual matrix of Eq. (network)."""
    gram = jnp.einsum("...mi,...mj->...ij", A, A, precision=lax.Precision.HIGHEST)
    return gram - jnp.broadcast_to(jnp.eye(A.shape[-1], dtype=A.dtype), gram.shape)


def soft_threshold(x: Float[Array, "*shape"], theta: float) -> Float[Array, "*shape"]:
    """eta_theta(x) = sign(x) max(|x| - theta, 0), the proximal operator of theta ||.||_1."""
    return jaxopt.prox.prox_lasso(x, theta)


def top_support(
    z: Float[Array, "*batch n"],
    s: int,
    *,
    signed: bool = False,
    distinct: bool = False,
    num_ops: int = DARTS.num_ops,
    exists: Bool[Array, "*batch n"] | None = None,
) -> Int[Array, "*batch s"]:
    """S(z): indices of the s largest |z|, strongest first; of equal ones the lower index wins.

    Args:
      signed: take the s largest z instead.
      distinct: take no two of one predecessor.
      num_ops: entries of z that belong to one predecessor.
      exists: candidates that may be chosen; None: all.
    """
    n = z.shape[-1]
    if not 1 <= s <= n:
        raise ValueError(f"s = {s} connections cannot be chosen from n = {n} candidates")
    strength = z if signed else jnp.abs(z)
    if exists is not None:
        strength = jnp.where(exists, strength, -jnp.inf)
    if not distinct:
        return lax.top_k(strength, s)[1]
    by_predecessor = strength.reshape(*z.shape[:-1], -1, num_ops)
    _, predecessor = lax.top_k(by_predecessor.max(-1), s)
    op = jnp.take_along_axis(by_predecessor.argmax(-1), predecessor, -1)
    return predecessor * num_ops + op.astype(predecessor.dtype)


def solve_lasso(
    A: Float[Array, "m n"],
    b: Float[Array, " m"],
    lam: float,
    *,
    z0: Float[Array, " n"] | None = None,
) -> SparseCode:
    """Solve Eq. (z). jit- and vmap-able; zero columns of A get z = 0.

    z can be differentiated in b: implicitly, through the optimality condition.

    Args:
      A: measurement matrix; m < n compresses, as in the paper, but is not required.
      b: compressed architecture variables.
      lam: lambda, the weight of ||z||_1.
      z0: where to start, by default 0; it changes the time taken and not the answer.
    """
    _check(A, b, lam)
    A, b, lam = jnp.asarray(A), jnp.asarray(b), jnp.asarray(lam, A.dtype)
    m, n = A.shape
    z0 = jnp.zeros(n, A.dtype) if z0 is None else jnp.asarray(z0)
    more = max(0, m + 1 - n)  # the active set has room for m entries, of more than m candidates
    A, z0 = jnp.pad(A, ((0, 0), (0, more))), jnp.pad(z0, (0, more))
    z, (converged, iterations, kkt) = _solve(z0, b, A, lam)
    return SparseCode(z[:n], converged, iterations, kkt)


def solve_nodes(
    A: Float[Array, "cells nodes m n"],
    b: Float[Array, "cells nodes m"],
    lam: float,
    *,
    z0: Float[Array, "cells nodes n"],
) -> SparseCode:
    """`solve_lasso` for all nodes of all cell types at once, padded as the matrices are."""
    _check(A, b, lam)

    def solve(A, b, z0):
        return solve_lasso(A, b, lam, z0=z0)

    return jax.vmap(jax.vmap(solve))(A, b, z0)


def _check(A, b, lam) -> None:
    """Raise if there is no meaningful solution; while tracing, only shapes are known."""
    m = A.shape[-2]
    if b.shape[-1] != m:
        raise ValueError(f"b has {b.shape[-1]} entries, but A has m = {m} rows")
    if not isinstance(lam, jax.core.Tracer) and not np.all(np.asarray(lam) > 0):
        raise ValueError(f"lambda must be positive, got {lam}")
    for name, array in (("A", A), ("b", b)):
        if not isinstance(array, jax.core.Tracer) and not np.isfinite(np.asarray(array)).all():
            raise ValueError(f"{name} contains NaN or infinity")


def _ista_step(z, b, A, lam):
    """Eq. (7): eta_{lambda/L}(z - Aᵀ(A z - b) / L), with L = ||A||_F² above the largest eigenvalue
    of AᵀA: by a third at most for A ~ U[0, 1), and free of an eigenvalue problem."""
    L = jnp.sum(A * A)
    residual = jnp.sum(A * z[None, :], 1) - b
    return soft_threshold(z - jnp.sum(A * residual[:, None], 0) / L, lam / L)


@jaxopt.implicit_diff.custom_fixed_point(_ista_step, has_aux=True, solve=solve_lu)
def _solve(z0, b, A, lam):
    rough, steps = _proximal_gradient(A, b, lam, z0)
    active = find_active_set(A, b, lam, rough)
    z = polish(A, b, lam, active)
    kkt, floor = kkt_residual(A, b, lam, z)
    return z, (kkt <= KKT_TOLERANCE + floor, steps + active.pivots, kkt)


def _proximal_gradient(A, b, lam, z0):
    """Do PROXIMAL_STEPS of jaxopt's accelerated proximal gradient, in units y = z L / lambda.

    In these units lambda and the step size are 1: jaxopt's tolerances and float32's range are then
    the same for every scale of b.
    """
    L = jnp.sum(A * A)
    scaled_A, scaled_b = A / jnp.sqrt(L), b * jnp.sqrt(L) / lam

    def smooth(y):
        residual = jnp.sum(scaled_A * y[None, :], 1) - scaled_b
        return 0.5 * jnp.sum(residual * residual)

    solver = jaxopt.ProximalGradient(
        smooth,
        jaxopt.prox.prox_lasso,
        stepsize=1.0,
        maxiter=PROXIMAL_STEPS,
        tol=1e-2,
        implicit_diff=False,
        unroll=False,
    )
    y, state = solver.run(z0 * L / lam, 1.0)
    return y * lam / L, state.iter_num
