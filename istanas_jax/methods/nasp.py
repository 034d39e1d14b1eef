"""NASP (Yao et al., AAAI 2020): a genotype in every step, by proximal steps.

alpha stays in [0, 1]. The network has, of each edge, the operation with the largest alpha and, of
each node, the s edges on which that is largest, with weight 1: the projection of alpha onto the
genotypes. The paper's Algorithm 2 projects each edge onto one operation; that a node keeps two
edges is the release's `proximal_step`. The gradient is taken at this discrete point and applied
to the continuous alpha. There is no zero operation, as in the release.

The gradient of alpha needs the outputs of all operations, so its half of a step runs dense; W's
half, and evaluation, run the genotype alone.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from istanas_jax.methods.tables import Table, TableArch, TableMethod, strongest
from istanas_jax.networks.supernet.dense import Mixture
from istanas_jax.networks.supernet.net import SuperNet, keep_inactive
from istanas_jax.training.states import TrainState


class Nasp(TableMethod):
    """NASP: its network is dense for alpha and sparse for W."""

    name = "nasp"
    title = "NASP"
    weighs_zero = False

    def init_alpha(self, key: jax.Array) -> Float[Array, "types edges ops"]:
        return 0.5 + super().init_alpha(key)

    def table(self, alpha) -> Table:
        return alpha

    def after_update(self, arch: TableArch, trainable) -> TableArch:
        return arch.replace(alpha=self.for_both(jnp.clip(trainable, 0, 1)))

    def network_inputs(self, arch: TableArch, weights: TrainState | None = None) -> dict[str, Any]:
        alpha = arch.alpha
        chosen = self.projected(alpha)
        # The gradient as if alpha were this.
        return {"mixture": Mixture(alpha + lax.stop_gradient(chosen - alpha))}

    def network_inputs_for_w(
        self, arch: TableArch, weights: TrainState | None = None
    ) -> dict[str, Any]:
        support, _ = strongest(arch.alpha, self.space)
        return {"support": support, "coefficients": jnp.ones(support.shape)}

    def keep_inactive_weights(self, net: SuperNet, arch: TableArch, before, after):
        support, _ = strongest(arch.alpha, self.space)
        return keep_inactive(net, support, before, after)

    def projected(self, alpha: Table) -> Table:
        """1 for the s connections that each node keeps, 0 elsewhere."""
        space = self.space
        support, _ = strongest(alpha, space)
        kept = jax.nn.one_hot(support, space.max_candidates).max(-2)
        rows = [
            kept[:, node, : space.num_candidates(node)].reshape(len(alpha), -1, space.num_ops)
            for node in range(space.nodes)
        ]
        return jnp.concatenate(rows, 1)
