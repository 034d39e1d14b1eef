"""SGD for W and Adam for b, from the `weights` and `adam` parts of a config."""

import jax
import optax
from ml_collections import ConfigDict

from istanas_jax.networks.kernels import fence


def learning_rate(config: ConfigDict, *, epochs: int, steps_per_epoch: int) -> optax.Schedule:
    """The rate as a function of the step; it changes every step, in the release every epoch."""
    first, last = config.learning_rate, config.final_learning_rate
    warmup = config.warmup_epochs * steps_per_epoch
    steps = max(epochs * steps_per_epoch - warmup, 1)
    if config.learning_rate_schedule == "cosine":
        decay = optax.cosine_decay_schedule(first, steps, alpha=last / first)
    elif config.learning_rate_schedule == "linear":
        decay = optax.linear_schedule(first, last, steps)
    else:
        decay = optax.constant_schedule(first)
    if not warmup:
        return decay
    return optax.join_schedules([optax.linear_schedule(0.0, first, warmup), decay], [warmup])


def sgd(config: ConfigDict, rate: optax.Schedule) -> optax.GradientTransformation:
    """SGD that clips, then adds decay to the gradient and not to the weight, as PyTorch does."""
    # XLA would compute the rate again, a cosine, for every element of every weight.
    once = lambda step: fence(rate(step))  # noqa: E731
    return optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.add_decayed_weights(config.weight_decay),
        optax.sgd(once, momentum=config.momentum),
    )


HEADS = ("classifier", "auxiliary")
PART_RATES = ("stem", "cells", "head")


def is_head(module: str) -> bool:
    """Whether a module of a network, by its name, belongs to the head."""
    return module in HEADS


def by_part(
    optimizer: optax.GradientTransformation, rates: dict[str, float]
) -> optax.GradientTransformation:
    """Multiply what an optimizer does to the stem, the cells and the head by a rate each."""

    def scale(updates: dict, _) -> dict:
        return {
            name: jax.tree.map(lambda x, name=name: rates[_part_of(name)] * x, part)
            for name, part in updates.items()
        }

    return optax.chain(optimizer, optax.stateless(scale))


def _part_of(module: str) -> str:
    return "head" if is_head(module) else "stem" if module == "stem" else "cells"


def adam(config: ConfigDict) -> optax.GradientTransformation:
    """Adam with decay added to the gradient."""
    return optax.chain(
        optax.add_decayed_weights(config.weight_decay),
        optax.adam(config.learning_rate, b1=config.b1, b2=config.b2),
    )
