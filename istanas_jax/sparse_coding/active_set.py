"""The exact finish of a LASSO: from a rough z to the right active set, and a certificate for it.

`lasso` uses it. Everything here is for one node and is vmapped over nodes by the caller.
Products of matrices and vectors are written as sums, since a default dot product on a TPU rounds
its operands to bfloat16.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

MAX_PIVOTS = 100


class ActiveSet(NamedTuple):
    """At most m active entries of z, and possibly one more that is entering."""

    index: Int[Array, " m"]  # which entries; the used slots come first
    used: Bool[Array, " m"]
    sign: Float[Array, " m"]
    z: Float[Array, " m"]
    r: Float[Array, " m"]  # b - A z
    entering: Int[Array, ""]  # -1: none
    entering_z: Float[Array, ""]
    done: Bool[Array, ""]
    pivots: Int[Array, ""]


class Factors(NamedTuple):
    """The active columns A_P = Q1 R, with Q2 spanning the rest of R^m; unused columns are 0."""

    A: Float[Array, "m m"]
    Q1: Float[Array, "m m"]
    Q2: Float[Array, "m m"]
    R: Float[Array, "m m"]


def find_active_set(
    A: Float[Array, "m n"], b: Float[Array, " m"], lam: Float[Array, ""], z: Float[Array, " n"]
) -> ActiveSet:
    """Go from the rough solution z to the exact active set, pivot by pivot.

    Two moves alternate. `_settle` takes z on the active set P to the solution of
    A_Pᵀ(b - A_P z) = lambda sign, dropping the first entry that would change sign on the way; from
    a settled set, the entry that violates |aᵀ(b - A z)| <= lambda most starts to enter. `_enter`
    lets it grow, the others following so that P stays settled, until its own condition holds or
    another entry reaches 0 and leaves. Each move lowers the objective, so no set comes back.
    """
    m, _ = A.shape
    size, index = lax.top_k(jnp.abs(z), m)
    start = ActiveSet(
        index=index,
        used=size > 1e-3 * size[0],  # the rest is what proximal gradient has not yet driven to 0
        sign=jnp.sign(z[index]),
        z=z[index],
        r=b,
        entering=jnp.int32(-1),
        entering_z=jnp.zeros((), A.dtype),
        done=jnp.bool_(False),
        pivots=jnp.int32(0),
    )

    def pivot(p: ActiveSet) -> ActiveSet:
        factors = _factor(A, p)
        settling = p.entering < 0
        moved = _choose(settling, _settle(A, b, lam, p, factors), _enter(A, lam, p, factors))
        return moved._replace(pivots=p.pivots + 1)

    return lax.while_loop(lambda p: ~p.done & (p.pivots < MAX_PIVOTS), pivot, start)


def polish(
    A: Float[Array, "m n"], b: Float[Array, " m"], lam: Float[Array, ""], p: ActiveSet
) -> Float[Array, " n"]:
    """Refine z iteratively on the final active set, right to the last bit of float32."""
    f = _factor(A, p)
    r = _settled_residual(b, lam, p, f)
    z, low = jnp.where(p.used, p.z, 0), jnp.zeros_like(p.z)
    for _ in range(3):
        error = _residual(f.A, b, z, low) - r
        z, low = _two_sum(z, low + solve_triangular(f.R, _matvec(f.Q1.T, error)))
    return jnp.zeros(A.shape[1], A.dtype).at[p.index].add(jnp.where(p.used, z, 0))


def kkt_residual(
    A: Float[Array, "m n"], b: Float[Array, " m"], lam: Float[Array, ""], z: Float[Array, " n"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The largest violation of the KKT conditions by z, and the float32 floor below it.

    Aᵀ(b - A z) must equal lambda sign(z) where z != 0 and lie within ±lambda elsewhere. Rounding an
    exact z to float32 moves each entry by up to half a unit in its last place, and with it the left
    side by up to the floor. Both relative to lambda.
    """
    correlation = _matvec(A.T, _residual(A, b, z, jnp.zeros_like(z)))
    active = jnp.abs(correlation - lam * jnp.sign(z))
    inactive = jnp.maximum(jnp.abs(correlation) - lam, 0)
    violation = jnp.where(z != 0, active, inactive)
    half_ulp = 0.5 * jnp.finfo(z.dtype).eps
    floor = half_ulp * _matvec(jnp.abs(A).T, _matvec(jnp.abs(A), jnp.abs(z)))
    return jnp.max(violation) / lam, jnp.max(floor) / lam


def _settle(A, b, lam, p: ActiveSet, f: Factors) -> ActiveSet:
    r = _settled_residual(b, lam, p, f)
    z = jnp.where(p.used, solve_triangular(f.R, _matvec(f.Q1.T, b - r)), 0)
    reach, leaving = _first_zero(p, z - p.z)
    shortened = _drop(p._replace(z=p.z + reach * (z - p.z)), leaving)

    active = jnp.zeros(A.shape[1], bool).at[p.index].max(p.used)
    rounding = 2 * jnp.finfo(r.dtype).eps * _matvec(jnp.abs(A).T, jnp.abs(r))
    excess = jnp.where(active, -jnp.inf, jnp.abs(_matvec(A.T, r)) - lam - rounding)
    entering = jnp.argmax(excess).astype(jnp.int32)
    settled = p._replace(
        z=z,
        r=r,
        entering=entering,
        entering_z=jnp.zeros_like(p.entering_z),
        done=excess[entering] <= 0,
    )
    return _choose(reach < 1, shortened, settled)


def _enter(A, lam, p: ActiveSet, f: Factors) -> ActiveSet:
    a = A[:, p.entering]
    follow = jnp.where(p.used, solve_triangular(f.R, _matvec(f.Q1.T, a)), 0)
    rest = _matvec(f.Q2, _matvec(f.Q2.T, a))  # the part of a that A_P cannot follow
    correlation = jnp.sum(a * p.r)
    sign = jnp.sign(correlation)
    # With m active entries nothing is left of a: its correlation stands still, another must leave.
    own = jnp.where(p.used.all(), jnp.inf, (jnp.abs(correlation) - lam) / jnp.sum(a * rest))
    reach, leaving = _first_zero(p, -sign * follow)
    step = sign * jnp.minimum(own, reach)
    p = p._replace(z=p.z - step * follow, r=p.r - step * rest, entering_z=p.entering_z + step)
    slot = jnp.arange(p.used.size) == jnp.sum(p.used)
    joined = p._replace(
        index=jnp.where(slot, p.entering, p.index),
        used=p.used | slot,
        sign=jnp.where(slot, sign, p.sign),
        z=jnp.where(slot, p.entering_z, p.z),
        entering=jnp.int32(-1),
    )
    return _choose(own <= reach, joined, _drop(p, leaving))


def _settled_residual(b, lam, p: ActiveSet, f: Factors):
    """The r = b - A_P z that settles P, A_Pᵀr = lambda sign, once refined.

    It is not computed from z: with m active entries Q2 is empty and r = lambda Q1 R⁻ᵀsign, free of
    the cancellation in b - A_P z however large b is.
    """
    target = jnp.where(p.used, lam * p.sign, 0)
    r = _matvec(f.Q2, _matvec(f.Q2.T, b)) + _matvec(f.Q1, _solve_transposed(f.R, target))
    return r + _matvec(f.Q1, _solve_transposed(f.R, target - _matvec(f.A.T, r)))


def _first_zero(p: ActiveSet, direction):
    """How far z goes along direction until an active entry reaches 0, and which one does."""
    shrinking = p.used & (p.sign * direction < 0)
    reach = jnp.where(shrinking, jnp.abs(p.z) / jnp.abs(direction), jnp.inf)
    return jnp.min(reach), jnp.argmin(reach)


def _drop(p: ActiveSet, slot) -> ActiveSet:
    used = p.used & (jnp.arange(p.used.size) != slot)
    order = jnp.argsort(~used, stable=True)
    return p._replace(index=p.index[order], used=used[order], sign=p.sign[order], z=p.z[order])


def _factor(A, p: ActiveSet) -> Factors:
    columns = jnp.where(p.used[None, :], A[:, p.index], 0)
    Q, R = jnp.linalg.qr(columns)
    R = jnp.where(p.used[None, :], R, jnp.eye(p.used.size, dtype=R.dtype))
    return Factors(columns, jnp.where(p.used[None, :], Q, 0), jnp.where(p.used[None, :], 0, Q), R)


def _choose(predicate, yes: ActiveSet, no: ActiveSet) -> ActiveSet:
    return jax.tree.map(lambda x, y: jnp.where(predicate, x, y), yes, no)


def _matvec(M, v):
    return jnp.sum(M * v[None, :], 1)


def _solve_transposed(R, v):
    return solve_triangular(R, v, trans=1)


def _residual(A, b, z, low):
    """Compute b - A (z + low) as if in twice the precision; low is below the rounding of z.

    Halves of float32 numbers have exact products, which no compiler can round in another way by
    fusing them into sums. The sums are a loop: written out, they were most of what a recovery
    compiles.
    """
    products = [-(a * v[None, :]).T for a in _halves(A) for v in _halves(z)]

    def add(carry, term):
        total, error = carry
        total, lost = _two_sum(total, term)
        return (total, error + lost), None

    (total, error), _ = lax.scan(add, (b, jnp.zeros_like(b)), jnp.concatenate(products))
    return total + (error - _matvec(A, low))


def _two_sum(x, y):
    """x + y as a rounded sum and its exact rounding error (Knuth)."""
    total = x + y
    shadow = total - x
    return total, (x - (total - shadow)) + (y - shadow)


def _halves(x):
    """x as a sum of two numbers of half its digits (Dekker)."""
    high = lax.reduce_precision(x, exponent_bits=8, mantissa_bits=11)
    return high, x - high
