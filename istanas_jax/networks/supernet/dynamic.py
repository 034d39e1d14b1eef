"""The dynamic cell: only the connections in the support run, and the support is data.

A cell's nodes have s slots each. A slot reads one predecessor and runs one operation on it, both
given as numbers: `lax.switch` picks the operation, so XLA compiles every operation once for a
cell and executes one per slot. A loop over the slots fills the buffer of the cell's states.

Differentiating `lax.switch` as it is would keep what every branch needs for its gradient. So the
whole loop has a gradient of its own: it keeps the states, which are the cell's output anyway, and
the backward loop runs each slot's operation again inside its branch. That costs about one extra
forward pass, and the memory is that of the states.

The weights of a slot are one vector, long enough for the largest operation: `pack_weights` cuts
them from the weights of all candidates, a branch takes its own part.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from istanas_jax.devices.platforms import by_platform
from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import Mode
from istanas_jax.networks.kernels import in_lanes
from istanas_jax.networks.operations import Weights
from istanas_jax.networks.supernet import cell_states
from istanas_jax.networks.supernet.cell_states import at, put_at
from istanas_jax.networks.supernet.cell_variables import CellSpec
from istanas_jax.space.connections import NUM_INPUTS, edge_index


class Slots(NamedTuple):
    """What each slot of a cell does, node by node, strongest connection first."""

    op: Int[Array, " slots"]
    predecessor: Int[Array, " slots"]
    edge: Int[Array, " slots"]  # number of the edge in the cell
    group: Int[Array, " slots"]
    place: Int[Array, " slots"]  # number of its set of weights in the group
    coefficient: Float[Array, " slots"]


def make_slots(
    support: Int[Array, "nodes s"], coefficients: Float[Array, "nodes s"], spec: CellSpec
) -> Slots:
    support, coefficients = jnp.asarray(support), jnp.asarray(coefficients)
    predecessor, op = spec.space.split_index(support)
    node = lax.broadcasted_iota(support.dtype, support.shape, 0)
    if spec.reduction:
        group = (predecessor >= NUM_INPUTS).astype(support.dtype)
        from_input = node * NUM_INPUTS + predecessor
        from_node = node * (node - 1) // 2 + predecessor - NUM_INPUTS
        place = jnp.where(group == 0, from_input, from_node)
    else:
        group = jnp.zeros_like(support)
        place = edge_index(node, predecessor)
    if spec.shared:
        place = jnp.zeros_like(place)
    columns = (op, predecessor, edge_index(node, predecessor), group, place, coefficients)
    return Slots(*(column.reshape(-1) for column in columns))


def pack_weights(
    groups: list[dict[str, Weights]], slots: Slots, spec: CellSpec
) -> Float[Array, "slots size"]:
    """Pack the weights of the active connections into one vector per slot.

    `groups` holds, per group and operation, all sets of weights along the first axis. Inactive
    ones get a gradient of exactly 0.
    """
    vectors = jnp.zeros((slots.op.size, spec.vector_size))
    for group, by_op in enumerate(groups):
        for op, weights in by_op.items():
            active = (slots.group == group) & (slots.op == spec.space.operations.index(op))
            names = spec.shapes(op, spec.strides[group])
            parts = [jnp.asarray(weights[name]).at[slots.place].get(mode="clip") for name in names]
            flat = jnp.concatenate([part.reshape(active.size, -1) for part in parts], 1)
            flat = jnp.pad(flat, [(0, 0), (0, spec.vector_size - flat.shape[1])])
            vectors = jnp.where(active[:, None], flat, vectors)
    return vectors


def run_slots(
    x0: Float[Array, "B H W C"],
    x1: Float[Array, "B H W C"],
    vectors: Float[Array, "slots size"],
    slots: Slots,
    stats: Float[Array, "slots norms 2 C"],
    *,
    spec: CellSpec,
    mode: Mode,
) -> tuple[Float[Array, "nodes B Ho Wo C"], Float[Array, "slots norms 2 C"]]:
    """Compute the cell's nodes, and what the active statistics should move towards."""
    return _run((spec, mode), x0, x1, vectors, slots.coefficient, slots, stats)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(static, x0, x1, vectors, coefficients, slots, stats):
    states, batch = _forward(static, x0, x1, vectors, coefficients, slots, stats)
    return cell_states.nodes(static[0], states), batch


def _run_fwd(static, x0, x1, vectors, coefficients, slots, stats):
    # The gradient of b needs none of W: what is not differentiated is marked by its absence.
    weights_move = vectors.perturbed
    x0, x1, vectors, coefficients, slots, stats = jax.tree.map(
        lambda leaf: leaf.value,
        (x0, x1, vectors, coefficients, slots, stats),
        is_leaf=lambda leaf: hasattr(leaf, "perturbed"),
    )
    states, batch = _forward(static, x0, x1, vectors, coefficients, slots, stats)
    marker = () if weights_move else None
    kept = (states, vectors, coefficients, slots, stats, marker)
    return (cell_states.nodes(static[0], states), batch), kept


def _run_bwd(static, residuals, cotangents):
    *arrays, marker = residuals
    dx0, dx1, dvectors, dcoefficients = _backward(
        static, *arrays, cotangents[0], weights_move=marker is not None
    )
    return dx0, dx1, dvectors, dcoefficients, None, None


_run.defvjp(_run_fwd, _run_bwd, symbolic_zeros=True)


def _forward(static, x0, x1, vectors, coefficients, slots, stats):
    """All states of the cell, and the batch's statistics of every slot."""
    spec, mode = static

    def fill_slot(t, carry, states):
        slot = jax.tree.map(lambda x: at(x, t), slots)

        def branch(operation, group):
            def run(images, _):
                y, moments = operation(images[group], at(vectors, t), at(stats, t))
                return operations.weigh(at(coefficients, t), y), moments

            return run

        def add(carry, result):
            return carry[0] + in_lanes(result[0]), result[1]

        def put(carry, added):
            return added[0], put_at(carry[1], added[1], t)

        read = partial(cell_states.read, states, slot.predecessor)
        return _switch(slot, spec, mode, branch, read, lambda: None, add, put, carry)

    def fill_node(j, carry):
        states, batch = carry
        node, batch = lax.fori_loop(
            0,
            spec.s,
            lambda k, carry: fill_slot(j * spec.s + k, carry, states),
            (jnp.zeros_like(states[-1][0]), batch),
        )
        return cell_states.write(states, node, j + NUM_INPUTS, len(states) - 1), batch

    start = (cell_states.first_states(spec, x0, x1), stats)
    return lax.fori_loop(0, spec.num_nodes, fill_node, start)


def _backward(static, states, vectors, coefficients, slots, stats, dnodes, *, weights_move):
    """Compute the gradients by running the slots in reverse, each operation once more."""
    spec, mode = static
    last = slots.op.size - 1

    def undo_slot(n, carry):
        t = last - n
        slot = jax.tree.map(lambda x: at(x, t), slots)

        def branch(operation, group):
            def run(images, dnode):
                x, vector, running = images[group], at(vectors, t), at(stats, t)
                f = lambda x, v, w: operations.weigh(w, operation(x, v, running)[0])  # noqa: E731
                coefficient = at(coefficients, t)
                if weights_move:
                    _, vjp = jax.vjp(f, x, vector, coefficient)
                else:
                    _, vjp = jax.vjp(lambda x, w: f(x, vector, w), x, coefficient)
                dx, *others = vjp(dnode)
                return dict.fromkeys(images) | {group: dx}, others

            return run

        def add(carry, result):
            dxs, others = result
            before = {group: cell_states.read(carry[0], slot.predecessor, group) for group in dxs}
            return {g: before[g] if dx is None else before[g] + dx for g, dx in dxs.items()}, others

        def put(carry, added):
            (grads, dvectors, dcoefficients), (totals, others) = carry, added
            if weights_move:
                dvectors = put_at(dvectors, others[0], t)
            dcoefficients = put_at(dcoefficients, others[-1], t)
            for group, total in totals.items():
                grads = cell_states.write(grads, total, slot.predecessor, group)
            return grads, dvectors, dcoefficients

        read = partial(cell_states.read, states, slot.predecessor)
        given = partial(cell_states.read, carry[0], t // spec.s + NUM_INPUTS, len(carry[0]) - 1)
        return _switch(slot, spec, mode, branch, read, given, add, put, carry)

    inputs = jnp.zeros((NUM_INPUTS, *states[0].shape[1:]), dnodes.dtype)
    grads = (inputs, dnodes) if spec.reduction else (jnp.concatenate([inputs, dnodes]),)
    grads = tuple(map(in_lanes, grads))
    start = (grads, jnp.zeros_like(vectors), jnp.zeros_like(coefficients))
    grads, dvectors, dcoefficients = lax.fori_loop(0, slots.op.size, undo_slot, start)
    return grads[0][0], grads[0][1], dvectors, dcoefficients


def _operations(spec: CellSpec, mode: Mode):
    """All that a slot can do: ((x, vector, stats) -> (y, batch statistics), group)."""

    def operation(op: str, stride: int):
        shapes = spec.shapes(op, stride)
        norms = operations.num_norms(op, stride, spec.regime)

        def run(x, vector, stats):
            weights, start = {}, 0
            for name, shape in shapes.items():
                end = start + math.prod(shape)
                weights[name], start = vector[start:end].reshape(shape), end
            y, batch = operations.apply_op(op, x, weights, stats[:norms], stride=stride, mode=mode)
            return y, jnp.concatenate([batch, stats[norms:]])

        return run

    return [
        (operation(op, stride), group)
        for group, stride in enumerate(spec.strides)
        for op in spec.space.operations
    ]


def _switch(slot: Slots, spec: CellSpec, mode: Mode, branch, read, given, add, put, carry):
    """Run the slot's operation on the state that it reads, and put away what comes out.

    Args:
      branch: (operation, its group) -> (images by group, what is given -> result).
      read: group -> the state that the slot reads, if its edge is in that group.
      given: () -> what all branches read besides.
      add: (carry, result) -> what the carry gets in place of what it has.
      put: (carry, that) -> carry.
    """
    listed = _operations(spec, mode)
    number = slot.group * spec.space.num_ops + slot.op

    def as_loops(number, carry):
        # On XLA's CPU backend each branch is a loop of one turn or none, which updates the carry
        # in place: with conditionals a cell takes a fifth longer and a quarter more memory.
        known = given()
        for n, (operation, group) in enumerate(listed):

            def turn(pending, operation=operation, group=group):
                result = branch(operation, group)({group: read(group)}, known)
                return jnp.bool_(False), put(pending[1], add(pending[1], result))

            _, carry = lax.while_loop(lambda pending: pending[0], turn, (number == n, carry))
        return carry

    def as_conditional(number, carry):
        # Accelerators copy a buffer that a conditional changes; what only reads it is inside, where
        # it is compiled into the operation.
        shapes = {group: jax.eval_shape(partial(read, group)) for group in range(len(spec.strides))}

        def alternative(operation, group):
            run = branch(operation, group)
            return lambda: add(carry, run(shapes | {group: read(group)}, given()))

        return put(carry, lax.switch(number, [alternative(*entry) for entry in listed]))

    return by_platform(number, carry, cpu=as_loops, default=as_conditional)
