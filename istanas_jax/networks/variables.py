"""Variables of networks: declared by modules, and drawn in one go."""

import itertools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import Mode, init_stats, update_stats
from istanas_jax.networks.operations import Weights
from istanas_jax.space.layers import fan_in


def init_variables(net: nn.Module, key: jax.Array, *args, **kwargs) -> dict:
    """Initialise what `net.init` would, with all weights drawn in one go.

    `net.init` draws each weight from a key of its own, and XLA's CPU backend takes about half a
    second to compile each draw. Here all come from one long vector, cut by numpy: jax would compile
    each cut.
    """
    shapes = jax.eval_shape(lambda: net.init(key, *args, **kwargs))
    leaves = jax.tree.leaves_with_path(shapes["params"])
    shape_of = {path: leaf.shape for path, leaf in leaves}
    drawn = jax.random.uniform(
        key, (sum(leaf.size for _, leaf in leaves),), minval=-1.0, maxval=1.0
    )
    if not isinstance(drawn, jax.core.Tracer):
        drawn = np.asarray(drawn)

    def param(path, leaf, start):
        name = path[-1].key
        if name.startswith(("scale", "shift")):
            return np.full(leaf.shape, name.startswith("scale"), np.float32)
        values = drawn[start : start + leaf.size].reshape(leaf.shape)
        # A bias is drawn as the kernel of its linear layer.
        kernel = (*path[:-1], jax.tree_util.DictKey("kernel")) if name == "bias" else path
        return values * (1 / np.float32(math.sqrt(fan_in(name, shape_of[kernel]))))

    starts = itertools.accumulate((leaf.size for _, leaf in leaves), initial=0)
    params = [param(path, leaf, start) for (path, leaf), start in zip(leaves, starts, strict=False)]
    stats = [
        np.broadcast_to(np.float32([[0], [1]]), leaf.shape)
        for leaf in jax.tree.leaves(shapes["batch_stats"])
    ]
    fresh = {"params": params, "batch_stats": stats}
    return {
        collection: jax.tree.unflatten(
            jax.tree.structure(shapes[collection]), map(jnp.asarray, values)
        )
        for collection, values in fresh.items()
    }


def declare_weights(
    module: nn.Module, shapes: dict[str, tuple[int, ...]], stack: tuple[int, ...] = ()
) -> Weights:
    """Declare weights of these names and shapes as parameters of the module, perhaps stacked."""
    return {
        name: module.param(
            name, lambda key, n=name, s=shape: operations.init_weight(key, n, stack + s)
        )
        for name, shape in shapes.items()
    }


def declare_stats(module: nn.Module, norms: int, channels: int) -> nn.Variable:
    return module.variable("batch_stats", "stats", init_stats, norms, channels)


def move_stats(module: nn.Module, stats: nn.Variable, batch: Array, mode: Mode) -> None:
    if mode.train and not module.is_initializing():
        stats.value = update_stats(stats.value, batch)
