"""GDAS (Dong and Yang, CVPR 2019): one operation per edge, drawn at each update.

On each edge the operation with the largest log p + G runs, with weight 1; G is from Gumbel's
distribution and p = softmax(alpha), so it is a draw from p. The gradient of its weight goes to
alpha through the softmax at a temperature (straight-through), and only the gradient of what was
drawn is used: the others do not run in the paper. The temperature falls linearly, epoch by epoch.
The zero operation can be drawn too: then an edge has no output.

Differs from the release in: 1. operations that were not drawn run as well and are multiplied by 0,
so a step costs what one of DARTS costs; 2. evaluation takes each edge's likeliest operation, where
the release draws. Not here: the variant whose reduction cell is fixed by hand (GDAS-FRC).
"""

import jax
import jax.numpy as jnp
from jax import lax

from istanas_jax.methods.tables import Table, TableArch, TableMethod
from istanas_jax.networks.supernet.dense import Mixture
from istanas_jax.training import streams
from istanas_jax.training.states import TrainState


class Gdas(TableMethod):
    """GDAS: alpha and W move in turns, on images of their own, each by a draw of its own."""

    name = "gdas"
    title = "GDAS"

    def table(self, alpha) -> Table:
        return self.softmax_table(alpha)

    def temperature(self, step):
        """From the first value, in the first epoch, to the final one in the last."""
        first, last = self.settings.temperature, self.settings.final_temperature
        done = (step // self.steps_per_epoch) / max(self.epochs - 1, 1)
        return first + (last - first) * jnp.minimum(done, 1.0)

    def network_inputs(
        self, arch: TableArch, weights: TrainState | None = None
    ) -> dict[str, Mixture]:
        if weights is None:
            return {"mixture": Mixture(_one_hot(self.existing(arch.alpha))[..., self.zero :])}
        return self._drawn(arch, weights.key(streams.METHOD), weights.step)

    def network_inputs_for_w(
        self, arch: TableArch, weights: TrainState | None = None
    ) -> dict[str, Mixture]:
        if weights is None:
            return self.network_inputs(arch)
        key = jax.random.fold_in(weights.key(streams.METHOD), 1)
        return self._drawn(arch, key, weights.step)

    def _drawn(self, arch: TableArch, key: jax.Array, step) -> dict[str, Mixture]:
        noise = jax.random.gumbel(key, arch.alpha.shape)
        logits = jax.nn.log_softmax(self.existing(arch.alpha), -1) + self.for_both(noise)
        soft = jax.nn.softmax(logits / self.temperature(step), -1)
        # 1 where drawn, with the gradient of the softmax there; 0, without one, elsewhere.
        drawn = _one_hot(logits) * (1 + (soft - lax.stop_gradient(soft)))
        return {"mixture": Mixture(drawn[..., self.zero :])}


def _one_hot(logits):
    """1 for the largest of each edge, 0 for the others."""
    return lax.stop_gradient(jax.nn.one_hot(logits.argmax(-1), logits.shape[-1]))
