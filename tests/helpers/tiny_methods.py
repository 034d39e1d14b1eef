"""Methods and cells of a super-net with two nodes, for tests of what methods compute."""

import jax.numpy as jnp
from places import ROOT

from istanas_jax.config.files import load_config
from istanas_jax.methods import find_method
from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import init_stats
from istanas_jax.networks.supernet.cell_variables import CellVariables

NODES, EDGES = 2, 5
STEPS = 10  # in an epoch


def config_of(method, *overrides):
    overrides = [f"search.method={method}", f"space.nodes={NODES}", *overrides]
    spec = str(ROOT / "configs" / "digits.py:tiny")
    return load_config(spec, [f"--config.{override}" for override in overrides])


def make(method, *overrides, **stage):
    return find_method(method)(config_of(method, *overrides), STEPS, **stage)


def random_cell(spec, rng):
    """Variables of a cell whose inputs have 3 channels."""

    def weights(shapes, stack=()):
        return {n: jnp.asarray(rng.normal(size=stack + s), jnp.float32) for n, s in shapes.items()}

    groups = tuple(
        {
            op: weights(spec.shapes(op, t), (len(edges),))
            for op in spec.space.operations
            if spec.shapes(op, t)
        }
        for t, edges in zip(spec.strides, spec.groups, strict=True)
    )
    pre = weights(operations.preprocess_shapes(3, spec.channels, False, spec.regime))
    pre_stats = jnp.stack([init_stats(1, spec.channels)] * 2)
    norms = operations.max_norms(spec.space.operations)
    shape = (EDGES, spec.space.num_ops, norms, 2, spec.op_channels)
    stats = jnp.broadcast_to(init_stats(norms, spec.op_channels)[None, None], shape)
    return CellVariables(pre, pre, groups, pre_stats, stats)
