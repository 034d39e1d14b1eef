"""The architecture during a search: b, the z recovered from it, and the connections that run.

Arrays carry two leading axes, cell type (0 normal, 1 reduction) and intermediate node, and are
padded to the candidates of the last node, so that all nodes are recovered by one call.
"""

import flax.struct
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from istanas_jax import sparse_coding
from istanas_jax.sparse_coding import SparseCode

CELL_TYPES = ("normal", "reduction")


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
    code: SparseCode  # of every node, the frozen ones too
    distance: Float[Array, "cells nodes"]  # ||z_new - z_old||, see `recover`

    @property
    def certified(self) -> Bool[Array, ""]:
        """Whether each node that may change was recovered from a solved LASSO."""
        return jnp.all(self.code.converged | self.arch.frozen)


def init_architecture(
    key: jax.Array, *, num_nodes: int, m: int, s: int, sigma: float, lam: float
) -> Recovery:
    """Algorithm 1, input: sample A, draw b = sigma N(0, 1), and recover the first z."""
    key_A, key_b = jax.random.split(key)
    A = sparse_coding.sample_measurement_matrices(key_A, num_nodes, m)
    b = sigma * jax.random.normal(key_b, A.shape[:-1])
    z = jnp.zeros(A.shape[:2] + A.shape[3:])
    arch = ArchState(
        b=b,
        A=A,
        z=z,
        support=sparse_coding.top_support(z, s),
        frozen=jnp.zeros(A.shape[:2], bool),
    )
    return recover(arch, lam=lam)


def recover(arch: ArchState, *, lam: float) -> Recovery:
    """Algorithm 1, line 2: z from b by the LASSO, warm-started, and its top-s support.

    The distance is that of the two z with all but their top-s entries set to 0, as line 2 leaves
    them; it decides about freezing (Algorithm 2, line 5) and is 0 for a frozen node.
    """
    s = arch.support.shape[-1]
    code = sparse_coding.solve_nodes(arch.A, arch.b, lam, z0=arch.z)
    z = jnp.where(arch.frozen[..., None], arch.z, code.z)
    support = jnp.where(arch.frozen[..., None], arch.support, sparse_coding.top_support(code.z, s))
    difference = keep_support(z, support) - keep_support(arch.z, arch.support)
    distance = jnp.sqrt(jnp.sum(difference * difference, -1))
    return Recovery(arch.replace(z=z, support=support), code, distance)


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
    E_SS = sparse_coding.residual_matrix(A_S)
    if implicit_lam is None:
        z = lax.stop_gradient(arch.z)
    else:
        z0 = lax.stop_gradient(arch.z)
        z = sparse_coding.solve_nodes(arch.A, arch.b, implicit_lam, z0=z0).z
    z_S = jnp.take_along_axis(z, arch.support, axis=-1)
    exact = lax.Precision.HIGHEST
    return jnp.einsum("cjm,cjms->cjs", arch.b, A_S, precision=exact) - jnp.einsum(
        "cjs,cjst->cjt", z_S, E_SS, precision=exact
    )


def move(arch: ArchState, b: Float[Array, "cells nodes m"]) -> ArchState:
    """Take the updated b, except for frozen nodes (an optimiser's momentum would move them)."""
    return arch.replace(b=jnp.where(arch.frozen[..., None], arch.b, b))


def freeze(arch: ArchState, distance: Float[Array, "cells nodes"], epsilon: float) -> ArchState:
    """Algorithm 2, line 5: a node whose z moved by at most epsilon is frozen for good."""
    return arch.replace(frozen=arch.frozen | (distance <= epsilon))
