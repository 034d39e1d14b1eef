"""SNAS (Xie et al., ICLR 2019): operations are drawn from a distribution, which is trained with W.

Z = softmax((log p + G) / temperature), G from Gumbel's distribution, p = softmax(alpha): Eq. (4).
One draw per step, the same in all cells of a type; alpha and W descend the same loss on the same
images. The temperature falls exponentially. Not here: the paper's constraint on resources.

Without a draw, in evaluation and for the genotype, the weights are p.
"""

import jax
import jax.numpy as jnp

from istanas_jax.methods.tables import Table, TableArch, TableMethod
from istanas_jax.networks.supernet.dense import Mixture
from istanas_jax.training import streams
from istanas_jax.training.search_steps import joint_step
from istanas_jax.training.states import TrainState


class Snas(TableMethod):
    """SNAS: joint descent on the images of W; those of the architecture only judge."""

    name = "snas"
    title = "SNAS"
    batches_per_step = 1
    update = staticmethod(joint_step)

    def table(self, alpha) -> Table:
        return self.softmax_table(alpha)

    def temperature(self, step):
        first, last = self.settings.temperature, self.settings.final_temperature
        return jnp.maximum(last, first * jnp.exp(-self.settings.annealing * step))

    def network_inputs(
        self, arch: TableArch, weights: TrainState | None = None
    ) -> dict[str, Mixture]:
        if weights is None:
            return super().network_inputs(arch)
        noise = jax.random.gumbel(weights.key(streams.METHOD), arch.alpha.shape)
        logits = jax.nn.log_softmax(self.existing(arch.alpha), -1) + self.for_both(noise)
        drawn = jax.nn.softmax(logits / self.temperature(weights.step), -1)
        return {"mixture": Mixture(drawn[..., self.zero :])}
