"""DrNAS (Chen et al., ICLR 2021): the weights of an edge's operations are drawn from a Dirichlet
distribution, whose concentration is trained.

    theta ~ Dir(beta),   beta = elu(alpha) + 1

One draw per update, the same in all cells of a type. Its gradient reaches beta pathwise, by
implicit differentiation of the distribution's cumulative function (`jax.random.loggamma`). The
distribution is pulled towards Dir(1), the uniform one: by the squared length of alpha, which is 0
where beta is 1, or by the Kullback-Leibler divergence. There is no zero operation, as in the
release. W is trained alone for the first epochs.

Without a draw, in evaluation and for the genotype, the weights are the mean, beta / sum(beta). The
release takes softmax(alpha) for the genotype, which orders the operations of an edge alike.

Not here: partial channels, and the stage in which edges lose operations while channels widen.
"""

import jax
import jax.numpy as jnp
import optax
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Bool, Float, Int

from istanas_jax.methods.contract import after_warmup
from istanas_jax.methods.tables import Table, TableArch, TableMethod
from istanas_jax.networks.supernet.dense import Mixture
from istanas_jax.training import streams
from istanas_jax.training.states import TrainState

Alpha = Float[Array, "types edges ops"]
Exists = Bool[Array, "types edges ops"] | bool


class DrNas(TableMethod):
    """DrNAS without its progressive stages."""

    name = "drnas"
    title = "DrNAS"
    weighs_zero = False

    def table(self, alpha: Alpha) -> Table:
        beta = concentration(self.existing(alpha))  # 0 where there is no candidate
        return beta / beta.sum(-1, keepdims=True)

    def network_inputs(
        self, arch: TableArch, weights: TrainState | None = None
    ) -> dict[str, Mixture]:
        if weights is None:
            return super().network_inputs(arch)
        return self._drawn(arch, weights.key(streams.METHOD))

    def network_inputs_for_w(
        self, arch: TableArch, weights: TrainState | None = None
    ) -> dict[str, Mixture]:
        if weights is None:
            return self.network_inputs(arch)
        return self._drawn(arch, jax.random.fold_in(weights.key(streams.METHOD), 1))

    def _drawn(self, arch: TableArch, key: jax.Array) -> dict[str, Mixture]:
        # A draw from Dir(beta) is a gamma variable for each entry, divided by their sum.
        gamma = self.for_both(jax.random.loggamma(key, concentration(arch.alpha)))
        return {"mixture": Mixture(jax.nn.softmax(self.existing(gamma), -1))}

    def adam(self) -> optax.GradientTransformation:
        """Adam on the gradient of the loss plus that of the distance from Dir(1)."""
        distance, scale = DISTANCES[self.settings.distance], self.settings.distance_scale

        def add(gradients, trainable):
            exists = True if self.exists.all() else self.trained(self.exists)
            pull = jax.tree.map(lambda alpha: jax.grad(distance)(alpha, exists), trainable)
            return optax.tree_utils.tree_add_scale(gradients, scale, pull)

        return optax.chain(optax.stateless(add), super().adam())

    def moves_at(self, step: Int[Array, ""]) -> Array | None:
        return after_warmup(self.settings.warmup_epochs, self.steps_per_epoch, step)


def concentration(alpha: Alpha) -> Alpha:
    return jax.nn.elu(alpha) + 1


def squared_length(alpha: Alpha, exists: Exists) -> Float[Array, ""]:
    """Half of it, whose gradient is alpha: as a decay of weights."""
    return jnp.sum(jnp.square(alpha), where=exists) / 2


def divergence(alpha: Alpha, exists: Exists) -> Float[Array, ""]:
    """The Kullback-Leibler divergence of Dir(beta) from Dir(1), summed over the edges."""
    beta = concentration(alpha)
    total = beta.sum(-1, keepdims=True, where=exists)
    terms = (beta - 1) * (digamma(beta) - digamma(total)) - gammaln(beta)
    entries = jnp.broadcast_to(exists, beta.shape).sum(-1).astype(beta.dtype)
    return jnp.sum(gammaln(total[..., 0]) - gammaln(entries)) + jnp.sum(terms, where=exists)


DISTANCES = {"l2": squared_length, "kl": divergence}
