"""The dense cell: every candidate runs and is multiplied by an entry of a table.

This is what DARTS and its descendants pay for: all outputs are computed, and kept for the gradient.
With `recompute` a cell keeps only its nodes, as `dynamic` does, and the backward pass runs each
operation again: the gradients are the same, the memory is a small part, and the cost is about one
more forward pass.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Key

from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import Mode, update_stats
from istanas_jax.networks.supernet.cell_variables import CellSpec, CellVariables, output, preprocess
from istanas_jax.networks.supernet.dynamic import make_slots
from istanas_jax.space.connections import NUM_INPUTS, edge_index, num_edges
from istanas_jax.space.operations import AUXILIARY_SKIP, find_operation


class Mixture(NamedTuple):
    """What candidates are multiplied by, for both cell types; the zero operation has no entry."""

    table: Float[Array, "types edges ops"]
    edges: Float[Array, "types edges"] | None = None  # for channels that pass by (PC-DARTS)
    drop: tuple[Key[Array, ""], Float[Array, ""]] | None = None  # key, rate (P-DARTS)

    def of_type(self, cell_type: int) -> "Mixture":
        """The mixture of one cell type, without the first axis."""
        return Mixture(
            self.table[cell_type], None if self.edges is None else self.edges[cell_type], self.drop
        )


def run_cell_mixed(cell: tuple[CellVariables, int], s0, s1, mixture, *, spec, mode: Mode):
    """Run the cell with its number; return its output and its updated statistics."""
    variables, number = cell
    if spec.space.auxiliary:
        always = spec.space.operations.index(AUXILIARY_SKIP)
        mixture = mixture._replace(table=mixture.table.at[:, always].set(1))
    if mixture.drop is not None:
        key, rate = mixture.drop
        keys = jax.random.split(jax.random.fold_in(key, number), num_edges(spec.num_nodes))
        mixture = mixture._replace(drop=(keys, rate))
    x0, x1, pre_stats = preprocess(variables, s0, s1, mode)
    nodes, batch = mix_all(variables, x0, x1, mixture, spec=spec, mode=mode)
    return output(jnp.stack(nodes)), (pre_stats, update_stats(variables.stats, batch))


def run_cell_dense(
    cell: CellVariables, s0, s1, support, coefficients, *, spec: CellSpec, mode: Mode
):
    """Compute what `run_cell` does from all candidates; only statistics of the support move."""
    slots = make_slots(support, coefficients, spec)
    table = jnp.zeros(cell.stats.shape[:2]).at[slots.edge, slots.op].add(slots.coefficient)
    active = jnp.zeros(cell.stats.shape[:2], bool).at[slots.edge, slots.op].set(True)
    x0, x1, pre_stats = preprocess(cell, s0, s1, mode)
    nodes, batch = mix_all(cell, x0, x1, Mixture(table), spec=spec, mode=mode)
    moved = update_stats(cell.stats, batch)
    after = jnp.where(active[:, :, None, None, None], moved, cell.stats)
    return output(jnp.stack(nodes)), (pre_stats, after)


def mix_all(
    cell: CellVariables,
    x0: Float[Array, "B H W C"],
    x1: Float[Array, "B H W C"],
    mixture: Mixture,
    *,
    spec: CellSpec,
    mode: Mode,
):
    """Compute every node as the sum of all candidates, each times its entry in the table."""
    states, batch = [x0, x1], []
    for node in range(spec.num_nodes):
        run = partial(_mix_node, node=node, spec=spec, mode=mode)
        state, seen = _recomputed(run, spec)(states, cell, mixture)
        states.append(state)
        batch += seen
    return states[NUM_INPUTS:], jnp.concatenate(batch)


def _recomputed(function, spec: CellSpec):
    """The function itself, or one that keeps only its arguments for the backward pass."""
    return jax.checkpoint(function) if spec.recompute else function


def _mix_node(states, cell: CellVariables, mixture: Mixture, *, node: int, spec, mode: Mode):
    """The sum of a node's candidates, and the moments seen on its edges, group by group."""
    total, batch = _zeros(states[0], spec), []
    edge = edge_index(node, 0)
    parts = [states] if not spec.reduction else [states[:NUM_INPUTS], states[NUM_INPUTS:]]
    for group, (stride, sources) in enumerate(zip(spec.strides, parts, strict=True)):
        if not sources:
            continue
        first = sum(before < node for before, _ in spec.groups[group])
        rows, places = slice(edge, edge + len(sources)), slice(first, first + len(sources))
        edges = _Edges(
            jnp.stack(sources),
            _of_edges(cell.groups[group], places, spec),
            cell.stats[rows],
            mixture.table[rows],
            None if mixture.edges is None else mixture.edges[rows],
            None if mixture.drop is None else mixture.drop[0][rows],
        )
        rate = None if mixture.drop is None else mixture.drop[1]
        candidates = spec.candidates and spec.candidates[rows]
        total, seen = _add_edges(total, edges, candidates, rate, stride, spec, mode)
        batch.append(seen)
        edge += len(sources)
    return _joined(total, spec), batch


def _of_edges(weights: dict, places: slice, spec: CellSpec) -> dict:
    """Select the weights of some edges along the first axis."""
    if spec.shared:
        size = places.stop - places.start
        return jax.tree.map(lambda w: jnp.broadcast_to(w, (size, *w.shape[1:])), weights)
    return jax.tree.map(lambda w: w[places], weights)


class _Edges(NamedTuple):
    """Some edges into a node, along the first axis."""

    x: Array
    weights: dict
    stats: Array
    row: Array
    weight: Array | None
    key: Array | None


def _add_edges(total, edges: _Edges, candidates, rate, stride: int, spec: CellSpec, mode: Mode):
    """Add the edges in a loop if all have the same candidates, otherwise one after the other."""
    if candidates is None:

        def add(total, edge):
            return _add_edge(total, edge, range(spec.space.num_ops), rate, stride, spec, mode)

        return lax.scan(add, total, edges)
    seen = []
    for n, some in enumerate(candidates):
        edge = jax.tree.map(lambda x, n=n: x[n], edges)
        total, batch = _add_edge(total, edge, some, rate, stride, spec, mode)
        seen.append(batch)
    return total, jnp.stack(seen)


def _add_edge(total, edge: _Edges, candidates, rate, stride: int, spec: CellSpec, mode: Mode):
    mixed, passing = total
    x = edge.x[..., : spec.op_channels]
    moments = list(edge.stats)
    for n in candidates:
        op = spec.space.operations[n]
        run = partial(_weighted_op, op, key=edge.key, rate=rate, stride=stride, mode=mode)
        norms = operations.num_norms(op, stride, spec.regime)
        before, weights = edge.stats[n], edge.weights.get(op, {})
        y, seen = _recomputed(run, spec)(x, weights, before[:norms], edge.row[n])
        mixed = mixed + y
        moments[n] = jnp.concatenate([seen, before[norms:]])
    if passing is not None:
        y = edge.x[..., spec.op_channels :]
        y = _halved_by_max(y) if stride == 2 else y
        passing = passing + operations.weigh(edge.weight, y)
    return (mixed, passing), jnp.stack(moments)


def _weighted_op(op: str, x, weights, stats, weight, *, key, rate, stride: int, mode: Mode):
    """An operation's output times its weight, and the moments that it saw."""
    y, seen = operations.apply_op(op, x, weights, stats, stride=stride, mode=mode)
    if rate is not None and find_operation(op).is_identity(stride):
        kept = jax.random.bernoulli(key, 1 - rate, y.shape)
        y = jnp.where(kept, y / (1 - rate).astype(y.dtype), 0)
    return operations.weigh(weight, y), seen


def _zeros(x: Float[Array, "B H W C"], spec: CellSpec):
    """An empty node: the part that operations compute, and the part that passes by."""
    b, h, w, c = x.shape
    h, w = (-(-h // 2), -(-w // 2)) if spec.reduction else (h, w)
    mixed = jnp.zeros((b, h, w, spec.op_channels), x.dtype)
    return mixed, jnp.zeros((b, h, w, c - spec.op_channels), x.dtype) if spec.partial > 1 else None


def _joined(total, spec: CellSpec) -> Float[Array, "B H W C"]:
    """Join both parts, shuffled so that operations of the next node see channels of each.

    PC-DARTS shuffles every edge; sums and shuffles may change places.
    """
    mixed, passing = total
    if passing is None:
        return mixed
    x = jnp.concatenate([mixed, passing], -1)
    shape = x.shape
    return jnp.swapaxes(x.reshape(*shape[:-1], spec.partial, -1), -1, -2).reshape(shape)


def _halved_by_max(x: Float[Array, "B H W C"]) -> Float[Array, "B Ho Wo C"]:
    """2x2 max-pooling of stride 2; the last row or column of an odd size is alone."""
    b, h, w, c = x.shape
    x = jnp.pad(x, [(0, 0), (0, h % 2), (0, w % 2), (0, 0)], constant_values=-jnp.inf)
    return x.reshape(b, x.shape[1] // 2, 2, x.shape[2] // 2, 2, c).max((2, 4))
