"""What a run carries from step to step: all that is needed to go on, to the bit."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int


@flax.struct.dataclass
class Totals:
    """Sums over the images of an epoch so far."""

    loss: Float[Array, ""]
    correct: Float[Array, ""]
    images: Float[Array, ""]

    @classmethod
    def zero(cls) -> "Totals":
        return cls(*(jnp.zeros((), jnp.float32) for _ in range(3)))

    def __add__(self, other: "Totals") -> "Totals":
        return jax.tree.map(jnp.add, self, other)


@flax.struct.dataclass
class TestTotals(Totals):
    """Sums over the images of an evaluation."""

    top5: Float[Array, ""]  # the label is among the five likeliest classes


@flax.struct.dataclass
class TrainState:
    """A network in training by SGD."""

    seed: Int[Array, ""]  # seed of everything that is drawn at random
    step: Int[Array, ""]  # updates done
    params: dict  # W
    stats: dict  # running statistics of the batch norms
    sgd: optax.OptState
    totals: Totals

    @classmethod
    def create(cls, variables: dict, sgd: optax.GradientTransformation, seed: int) -> "TrainState":
        return cls(
            seed=jnp.int32(seed),
            step=jnp.int32(0),
            params=variables["params"],
            stats=variables["batch_stats"],
            sgd=jax.jit(sgd.init)(variables["params"]),
            totals=Totals.zero(),
        )

    def advance(
        self, params: dict, stats: dict, sgd: optax.OptState, batch: Totals
    ) -> "TrainState":
        """The state after an update on this batch."""
        return self.replace(
            step=self.step + 1,
            params=params,
            stats=stats,
            sgd=sgd,
            totals=self.totals + batch,
        )

    def key(self, stream: int) -> jax.Array:
        """The key of a stream at this step; it depends on seed, step and stream alone."""
        key = jax.random.key(self.seed)
        return jax.random.fold_in(jax.random.fold_in(key, self.step), stream)


@flax.struct.dataclass
class SearchState:
    """A super-net in search: its weights by SGD, and the architecture by Adam."""

    weights: TrainState
    arch: Any  # the method's own
    adam: optax.OptState  # state of the architecture's optimiser
    b_totals: Totals  # sums over the batches that moved the architecture

    @property
    def step(self) -> Int[Array, ""]:
        return self.weights.step
