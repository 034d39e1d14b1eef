"""Random search with the budget of a search: random genotypes, each trained for an equal share.

The super-net runs one genotype at a time, every coefficient 1, at the size of the search. When its
share of the epochs is over it is judged by images that trained no weights, and the next begins with
new weights and a new learning-rate schedule. The best is the result.

A step trains W alone, on one batch: as many steps as the other methods have, each cheaper.
"""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from istanas_jax.methods.contract import Method, Snapshot
from istanas_jax.networks.supernet.net import SuperNet, keep_inactive
from istanas_jax.sparse_coding.architecture import pick
from istanas_jax.training.search_accuracy import IMAGES, named_accuracy
from istanas_jax.training.search_steps import weights_step
from istanas_jax.training.states import SearchState


@flax.struct.dataclass
class RandomArch:
    """All genotypes, which of them is trained now, and how the earlier ones did."""

    supports: Int[Array, "genotypes types nodes s"]
    now: Int[Array, ""]
    accuracy: Float[Array, " genotypes"]
    loss: Float[Array, " genotypes"]


class RandomSearch(Method):
    """Random search: nothing of the architecture is trained."""

    name = "random"
    title = "random search"
    batches_per_step = 1
    watched = False  # a genotype stands for as long as it is trained
    update = staticmethod(weights_step)

    def __init__(self, config, steps_per_epoch: int, **stage):
        super().__init__(config, steps_per_epoch, **stage)
        self.genotypes = self.settings.genotypes
        if self.epochs % self.genotypes:
            raise ValueError(
                f"search.epochs {self.epochs} cannot be shared equally by search.random.genotypes "
                f"{self.genotypes}"
            )
        self.epochs_of_w = self.epochs // self.genotypes

    def adam(self) -> optax.GradientTransformation:
        return optax.identity()

    def init_variables(self, key: jax.Array) -> RandomArch:
        """Draw s candidates for each node, all with equal probability."""
        space = self.space
        draws = jax.random.uniform(key, (self.genotypes, 2, space.nodes, space.max_candidates))
        supports = pick(draws, space, distinct=space.distinct, exists=np.array(space.exists))
        supports = jax.vmap(self.for_both)(supports)
        none = jnp.zeros(self.genotypes)
        return RandomArch(supports.astype(jnp.int32), jnp.int32(0), none, none)

    def trainable(self, arch: RandomArch) -> tuple:
        return ()

    def network_inputs(self, arch: RandomArch, weights=None) -> dict[str, Array]:
        support = arch.supports[arch.now]
        return {"support": support, "coefficients": jnp.ones(support.shape)}

    def keep_inactive_weights(self, net: SuperNet, arch: RandomArch, before, after):
        return keep_inactive(net, arch.supports[arch.now], before, after)

    def snapshot(self, arch: RandomArch) -> Snapshot:
        support = arch.supports[arch.now]
        ones = jnp.ones(support.shape)
        return {
            "z": jax.nn.one_hot(support, self.space.max_candidates).max(-2),
            "support": support,
            "coefficients": ones,
            "frozen": jnp.zeros(support.shape[:2], bool),
        }

    def between_steps(self, search, state: SearchState, step: int) -> SearchState:
        """When a share is over, judge its genotype and begin with the next."""
        report = None
        if step and step % (self.epochs_of_w * self.steps_per_epoch) == 0:
            arch = self._judged(search, state)
            report = {"before": arch.supports[arch.now]}
            search.say(
                f"{search.name}: genotype {arch.now} has "
                f"{100 * arch.accuracy[arch.now]:.2f} % of {IMAGES[search.accuracy_of]} right"
            )
            arch = arch.replace(now=arch.now + 1)
            key = jax.random.fold_in(jax.random.key(search.seed), step)
            fresh = search.fresh_weights(arch, key)
            fresh = fresh.replace(step=jnp.int32(step))
            state = state.replace(weights=fresh, arch=arch)
            state = search.devices.replicate(state)
        if step % self.steps_per_epoch == 0:
            self.reports.append((step, report, self._snapshot(state.arch)))
        return state

    def _judged(self, search, state: SearchState) -> RandomArch:
        """Add the accuracy of the genotype that is trained now, on the host."""
        arch = jax.device_get(state.arch)
        measured = search.evaluate(state, search.monitored)
        accuracy, loss = arch.accuracy.copy(), arch.loss.copy()
        accuracy[arch.now], loss[arch.now] = measured["accuracy"], measured["loss"]
        return arch.replace(accuracy=accuracy, loss=loss)

    def outcome(self, search, state: SearchState) -> dict:
        arch = self._judged(search, state)
        best = int(np.argmax(arch.accuracy))
        return {
            "support": arch.supports[best],
            "coefficients": np.ones(arch.supports[best].shape),
            "frozen": 0,
            **named_accuracy(
                search.accuracy_of,
                {"accuracy": float(arch.accuracy[best]), "loss": float(arch.loss[best])},
            ),
        }
