"""NASP (Yao et al., AAAI 2020): one operation per edge, by proximal steps.

alpha stays in [0, 1]. The network has, on each edge, the operation with the largest alpha, with
weight 1: the projection of alpha onto one operation per edge. The gradient is taken at this
discrete point and applied to the continuous alpha (Algorithm 2).

The gradient of alpha needs the outputs of all operations, so its half of a step runs dense; W's
half, and evaluation, run sparse, with one slot of the dynamic net per edge.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from istanas_jax.dense import Mixture
from istanas_jax.methods.tables import SKIP, ZERO, Table, TableArch, TableMethod
from istanas_jax.search_space import (
    edge_index,
    flat_index,
    num_edges,
    num_predecessors,
)
from istanas_jax.supernet import SuperNet, keep_inactive
from istanas_jax.train_state import TrainState


class Nasp(TableMethod):
    """Dense for alpha, sparse for W."""

    def init_alpha(self, key: jax.Array) -> Float[Array, "types edges entries"]:
        return 0.5 + super().init_alpha(key)

    def table(self, alpha) -> Table:
        return alpha[..., ZERO:]

    def moved(self, arch: TableArch, trained) -> TableArch:
        return arch.replace(alpha=jnp.clip(trained, 0, 1))

    def inputs(self, arch: TableArch, weights: TrainState | None = None) -> dict[str, Any]:
        alpha = arch.alpha
        chosen = jax.nn.one_hot(alpha.argmax(-1), alpha.shape[-1])
        at_chosen = alpha + lax.stop_gradient(chosen - alpha)  # the gradient as if alpha were this
        return {"mixture": Mixture(at_chosen[..., ZERO:])}

    def inputs_of_w(self, arch: TableArch, weights: TrainState | None = None) -> dict[str, Any]:
        support, active = self._slots(arch.alpha)
        return {"support": support, "coefficients": active}

    def kept(self, net: SuperNet, arch: TableArch, before, after):
        support, _ = self._slots(arch.alpha)
        return keep_inactive(net, support, before, after)

    def _slots(
        self, alpha
    ) -> tuple[Int[Array, "types nodes edges"], Float[Array, "types nodes edges"]]:
        """A slot for each edge of each node; coefficient 0 where nothing should run.

        Such slots, of the zero operation or of predecessors that a node does not have, hold a
        skip-connection, which costs next to nothing; they repeat an edge of the node.
        """
        chosen = alpha.argmax(-1) - ZERO  # (types, edges)
        most = num_predecessors(self.nodes - 1)
        supports, active = [], []
        for node in range(self.nodes):
            own = num_predecessors(node)
            predecessor = jnp.minimum(jnp.arange(most), own - 1)
            ops = chosen[:, edge_index(node, 0) : edge_index(node + 1, 0)]
            ops = jnp.pad(ops, [(0, 0), (0, most - own)], constant_values=-1)
            active.append((ops >= 0).astype(jnp.float32))
            ops = jnp.where(ops >= 0, ops, SKIP)
            supports.append(flat_index(predecessor[None], ops))
        assert len(chosen[0]) == num_edges(self.nodes)
        return jnp.stack(supports, 1).astype(jnp.int32), jnp.stack(active, 1)
