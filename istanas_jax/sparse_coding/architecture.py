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

from istanas_jax.space import connections
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

    nodes: int = 4
    m: int = 7  # entries of b
    s: int = 2  # connections kept per node
    lam: float = 1e-5  # lambda of the LASSO
    columns: str = "uniform"  # of A, see `lasso.sample_measurement_matrices`
    signed: bool = False  # keep the largest z, not the largest |z|
    distinct: bool = False  # keep connections of different predecessors
    whole_distance: bool = True  # between all of two z, or only between what is kept of them


def draw_architecture(key: jax.Array, coding: Coding, *, sigma: float) -> ArchState:
    """Algorithm 1, input: sample A and draw b = sigma N(0, 1); z is 0 until it is recovered."""
    key_A, key_b = jax.random.split(key)
    A = lasso.sample_measurement_matrices(key_A, coding.nodes, coding.m, columns=coding.columns)
    b = sigma * jax.random.normal(key_b, A.shape[:-1])
    z = jnp.zeros(A.shape[:2] + A.shape[3:])
    return ArchState(
        b=b,
        A=A,
        z=z,
        support=lasso.top_support(z, coding.s),
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
    z = jnp.where(arch.frozen[..., None], arch.z, code.z)
    chosen = lasso.top_support(
        code.z,
        coding.s,
        signed=coding.signed,
        distinct=coding.distinct,
        exists=jnp.any(arch.A != 0, axis=-2),
    )
    support = jnp.where(arch.frozen[..., None], arch.support, chosen)
    arch_after = arch.replace(z=z, support=support)
    distance = jnp.linalg.norm(settled(arch_after, coding) - settled(arch, coding), axis=-1)
    return Recovery(arch_after, code, distance)


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
    arch: ArchState, *, implicit_lam: float | None = None
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
    z_S = jnp.take_along_axis(z, arch.support, axis=-1)
    exact = lax.Precision.HIGHEST
    return jnp.einsum("cjm,cjms->cjs", arch.b, A_S, precision=exact) - jnp.einsum(
        "cjs,cjst->cjt", z_S, E_SS, precision=exact
    )


def straight_coefficients(
    arch: ArchState, *, compare: bool = False
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
    if compare:
        w -= jnp.mean(w, -1, keepdims=True)
    return 1 / arch.support.shape[-1] + w - lax.stop_gradient(w)


def draw_support(key: jax.Array, coding: Coding) -> Int[Array, "cells nodes s"]:
    """Draw s candidates of each node, all equally probable, two of one predecessor included.

    Every candidate is compared with every other, whatever may be chosen in the end.
    """
    longest = connections.max_candidates(coding.nodes)
    own = connections.num_candidates(np.arange(coding.nodes))
    draws = jax.random.uniform(key, (2, coding.nodes, longest))
    return lasso.top_support(draws, coding.s, exists=np.arange(longest) < own[:, None])


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
