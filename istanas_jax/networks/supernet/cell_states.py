"""The states of a dynamic cell, and their gradients: inputs and nodes in one buffer.

Where the inputs are larger, in a reduction cell, they have a buffer of their own.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from istanas_jax.networks.kernels import in_lanes
from istanas_jax.networks.supernet.cell_variables import CellSpec
from istanas_jax.space.connections import NUM_INPUTS


def first_states(spec: CellSpec, x0, x1):
    inputs = jnp.stack([x0, x1])
    batch, height, width, c = x0.shape
    if spec.reduction:
        height, width = -(-height // 2), -(-width // 2)
    nodes = jnp.zeros((spec.num_nodes, batch, height, width, c), x0.dtype)
    states = (inputs, nodes) if spec.reduction else (jnp.concatenate([inputs, nodes]),)
    return tuple(map(in_lanes, states))


def nodes(spec: CellSpec, states):
    return states[1] if spec.reduction else states[0][NUM_INPUTS:]


def read(states, state, group: int):
    if group == 1:
        state = state - NUM_INPUTS
    return in_lanes(at(states[group], state))


def write(states, value, state, group: int):
    if group == 1:
        state = state - NUM_INPUTS
    written = in_lanes(put_at(states[group], in_lanes(value), state))
    return (*states[:group], written, *states[group + 1 :])


def at(x: Array, index: Int[Array, ""]) -> Array:
    # No index is negative: not asking for that saves a tenth of a program's operations.
    return lax.dynamic_index_in_dim(x, index, 0, keepdims=False, allow_negative_indices=False)


def put_at(x: Array, value: Array, index: Int[Array, ""]) -> Array:
    return lax.dynamic_update_index_in_dim(x, value, index, 0, allow_negative_indices=False)
