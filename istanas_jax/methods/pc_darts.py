"""PC-DARTS (Xu et al., ICLR 2020): operations see a part of the channels; edges have weights too.

One channel in `partial` goes through the operations of an edge, the others pass by (halved by
max-pooling where the edge has stride 2), and all are shuffled; see `dense`. An edge counts by a
softmax beta over the edges of its node, Eq. (3). W is trained alone for the first epochs.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from istanas_jax.methods.contract import after_warmup
from istanas_jax.methods.tables import Table, TableArch, TableMethod
from istanas_jax.networks.supernet.dense import Mixture
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.space.connections import edge_index


class PCDarts(TableMethod):
    """PC-DARTS; its trainable part has "alpha" for operations and "beta" for edges."""

    name = "pc_darts"
    title = "PC-DARTS"

    def adapt_net(self, net: SuperNet) -> SuperNet:
        return super().adapt_net(net).clone(partial=self.settings.partial)

    def init_alpha(self, key: jax.Array) -> dict[str, Array]:
        draws = jax.random.normal(key, (*self.alpha_shape[:2], self.alpha_shape[2] + 1))
        return {
            "alpha": self.settings.sigma * draws[..., 1:],
            "beta": self.settings.sigma * draws[..., 0],
        }

    def edges(self, alpha) -> Float[Array, "types edges"]:
        """A softmax over the edges into each node."""
        parts = [
            jax.nn.softmax(alpha["beta"][:, edge_index(node, 0) : edge_index(node + 1, 0)], -1)
            for node in range(self.space.nodes)
        ]
        return jnp.concatenate(parts, -1)

    def table(self, alpha) -> Table:
        return self.edges(alpha)[..., None] * self.softmax_table(alpha["alpha"])

    def network_inputs(self, arch: TableArch, weights=None) -> dict[str, Mixture]:
        return {"mixture": Mixture(self.table(arch.alpha), self.edges(arch.alpha))}

    def moves_at(self, step: Int[Array, ""]) -> Array | None:
        return after_warmup(self.settings.warmup_epochs, self.steps_per_epoch, step)
