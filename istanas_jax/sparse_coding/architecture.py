"""The architecture during a search: b, the z recovered from it, and the connections that run.

Arrays carry two leading axes, cell type (0 normal, 1 reduction) and intermediate node, and are
padded to the candidates of the last node, so that all nodes are recovered by one call.
"""

from dataclasses import dataclass
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from istanas_jax.space.spaces import DARTS, Space
from istanas_jax.sparse_coding import lasso
from istanas_jax.sparse_coding.lasso import SparseCode


@flax.struct.dataclass
class ArchState:
    """All that is known about the architecture; enough to go on, to the bit."""

    b: Float[Array, "cells nodes m"]  # trained
    A: Float[Array, "cells nodes m n"]  # drawn once, fixed
    z: Float[Array, "cells nodes n"]  # the last LASSO solution, all of it
    support: Int[Array, "cells nodes s"]  # flat indices of the active connections, strongest first
    frozen: Bool[Array, "cells nodes"]  # nodes whose b, z and support no longer change


@flax.struct.dataclass
class Recovery:
    """What `recover` gives: the new state, and what the caller should look at before using it."""

    arch: ArchState
    code: SparseCode  # for every node, the frozen ones too
    distance: Float[Array, "cells nodes"]  # ||z_new - z_old||, see `recover`

    @property
    def certified(self) -> Bool[Array, ""]:
        """Whether each node that may change was recovered from a solved LASSO."""
        return jnp.all(self.code.converged | self.arch.frozen)


@dataclass(frozen=True)
class Coding:
    """How b stands for connections: all that is fixed about the sparse coding of a run.

    The defaults are the paper's and its release's.
    """

    space: Space = DARTS
    m: int = 7  # entries of b
    lam: float = 1e-5  # lambda of the LASSO
    columns: str = "uniform"  # of A, see `lasso.sample_measurement_matrices`
    signed: bool = False  # keep the largest z, not the largest |z|
    distinct: bool = False  # keep connections of different predecessors
    whole_distance: bool = True  # between all of two z, or only between what is kept of them


def draw_architecture(key: jax.Array, coding: Coding, *, sigma: float) -> ArchState:
    """Algorithm 1, input: sample A and draw b = sigma N(0, 1); z is 0 until it is recovered."""
    key_A, key_b = jax.random.split(key)
    A = lasso.sample_measurement_matrices(key_A, coding.space, coding.m, columns=coding.columns)
    b = sigma * jax.random.normal(key_b, A.shape[:-1])
    A, b = tie((A, b), coding.space)
    z = jnp.zeros(A.shape[:2] + A.shape[3:])
    return ArchState(
        b=b,
        A=A,
        z=z,
        support=pick(z, coding.space),
        frozen=jnp.zeros(A.shape[:2], bool),
    )


def init_architecture(key: jax.Array, coding: Coding, *, sigma: float) -> Recovery:
    """Draw an architecture and recover its first z."""
    return recover(draw_architecture(key, coding, sigma=sigma), coding)


def recover(arch: ArchState, coding: Coding) -> Recovery:
    """Algorithm 1, line 2: z from b by the LASSO, warm-started, and its top-s support.

    The distance decides about freezing (Algorithm 2, line 5) and is 0 for a frozen node. The
    release compares whole z's; the paper's line 2 leaves them only their top s entries.
    """
    code = lasso.solve_nodes(arch.A, arch.b, coding.lam, z0=arch.z)
    code = code._replace(z=tie(code.z, coding.space))
    z = jnp.where(arch.frozen[..., None], arch.z, code.z)
    chosen = pick(
        code.z,
        coding.space,
        signed=coding.signed,
        distinct=coding.distinct,
        exists=jnp.any(arch.A != 0, axis=-2),
    )
    support = jnp.where(arch.frozen[..., None], arch.support, chosen)
    arch_after = arch.replace(z=z, support=support)
    distance = jnp.linalg.norm(settled(arch_after, coding) - settled(arch, coding), axis=-1)
    return Recovery(arch_after, code, distance)


def pick(
    strength: Float[Array, "*batch nodes n"], space: Space, **rules
) -> Int[Array, "*batch nodes s"]:
    """`lasso.top_support` of all nodes; one that keeps fewer than others repeats its last pick."""
    picks = lasso.top_support(strength, space.most, num_ops=space.num_ops, **rules)
    return fill_up(picks, space)


def fill_up(picks: Array, space: Space) -> Array:
    """Repeat the last pick of each node that keeps fewer connections than others."""
    if not space.uneven:
        return picks
    ranks = np.broadcast_to(np.array(space.ranks), picks.shape)
    return jnp.take_along_axis(picks, ranks, -1)


def only_kept(
    values: Float[Array, "*batch nodes s"], space: Space
) -> Float[Array, "*batch nodes s"]:
    """0 in the columns that repeat a pick."""
    if not space.uneven:
        return values
    return jnp.where(np.array(space.own_columns), values, 0)


def settled(arch: ArchState, coding: Coding) -> Float[Array, "cells nodes n"]:
    """The part of z that must stand still for a node to be frozen."""
    return arch.z if coding.whole_distance else keep_support(arch.z, arch.support)


def keep_support(
    z: Float[Array, "*batch n"], support: Int[Array, "*batch s"]
) -> Float[Array, "*batch n"]:
    """z with every entry outside the support set to 0."""
    kept = jax.nn.one_hot(support, z.shape[-1], dtype=bool).any(-2)
    return jnp.where(kept, z, 0)


def coefficients(
    arch: ArchState, *, implicit_lam: float | None = None, space: Space = DARTS
) -> Float[Array, "cells nodes s"]:
    """Eq. (network_s): w_S = bᵀA_S - z_SᵀE_SS, the weights of the active connections.

    z is held constant, so the gradient reaches b through bᵀA_S alone. With implicit_lam = lambda,
    z is the function z(b) of Eq. (network) and the gradient flows through the LASSO as well.
    """
    A_S = jnp.take_along_axis(arch.A, arch.support[:, :, None, :], axis=-1)
    E_SS = lasso.residual_matrix(A_S)
    if implicit_lam is None:
        z = lax.stop_gradient(arch.z)
    else:
        z0 = lax.stop_gradient(arch.z)
        z = lasso.solve_nodes(arch.A, arch.b, implicit_lam, z0=z0).z
    z_S = only_kept(jnp.take_along_axis(z, arch.support, axis=-1), space)
    exact = lax.Precision.HIGHEST
    w_S = jnp.einsum("cjm,cjms->cjs", arch.b, A_S, precision=exact) - jnp.einsum(
        "cjs,cjst->cjt", z_S, E_SS, precision=exact
    )
    return only_kept(w_S, space)


def straight_coefficients(
    arch: ArchState, *, compare: bool = False, space: Space = DARTS
) -> Float[Array, "cells nodes s"]:
    """1 / s for every connection of the support, with the gradient of bᵀA_S.

    Connections that are drawn at random run with equal weight, and b learns which of them should
    have had more: its gradient is A_S times that of the coefficients, as in Eq. (network_s).

    Args:
      compare: b learns only how the connections of a node differ. What they share, the wish for a
        larger or smaller output of the node, is the same for all candidates; summed up over steps
        it would favour those that happened to be drawn more often.
    """
    A_S = jnp.take_along_axis(arch.A, arch.support[:, :, None, :], axis=-1)
    w = jnp.einsum("cjm,cjms->cjs", arch.b, A_S, precision=lax.Precision.HIGHEST)
    if space.uneven:
        s = np.sum(space.own_columns, -1, keepdims=True)
        mean = jnp.sum(only_kept(w, space), -1, keepdims=True) / s
    else:
        s, mean = arch.support.shape[-1], jnp.mean(w, -1, keepdims=True)
    if compare:
        w -= mean
    return only_kept(1 / s + w - lax.stop_gradient(w), space)


def draw_support(key: jax.Array, coding: Coding) -> Int[Array, "cells nodes s"]:
    """Draw s candidates of each node, all equally probable.

    Two of one predecessor are included unless the space forbids it: every candidate is compared
    with every other, whatever may be chosen in the end.
    """
    space = coding.space
    draws = jax.random.uniform(key, (2, space.nodes, space.max_candidates))
    exists = np.array(space.exists if space.candidates else space.exists[0])
    drawn = pick(draws, space, distinct=space.distinct, exists=exists)
    return tie(drawn, space)


def tie(arrays, space: Space):
    """The arrays, or where both cells are alike those of the normal cell twice."""
    if not space.alike:
        return arrays
    return jax.tree.map(lambda x: jnp.concatenate([x[:1]] * 2), arrays)


def move(arch: ArchState, b: Float[Array, "cells nodes m"]) -> ArchState:
    """Take the updated b, except for frozen nodes (an optimiser's momentum would move them)."""
    return arch.replace(b=jnp.where(arch.frozen[..., None], arch.b, b))


class Freezing(NamedTuple):
    """When nodes are frozen."""

    rule: str  # "node": each by itself (the release); "together" (the paper); "never"
    epsilon: float


def freeze(arch: ArchState, distance: Float[Array, "cells nodes"], freezing: Freezing) -> ArchState:
    """Algorithm 2, line 5: freeze nodes for good whose z moved by at most epsilon."""
    rule, epsilon = freezing
    if rule == "never" or epsilon == 0:
        return arch
    if rule == "together":
        distance = jnp.broadcast_to(jnp.linalg.norm(distance), distance.shape)
    return arch.replace(frozen=arch.frozen | (distance <= epsilon))


def supports_of(arch: ArchState) -> list[list[tuple[int, ...]]]:
    """Flat indices of each node of the normal and the reduction cell, strongest first."""
    return [[tuple(map(int, node)) for node in cell] for cell in np.asarray(arch.support)]
