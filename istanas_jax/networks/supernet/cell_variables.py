"""A super-net's cell: its static description, and the variables of all its candidates."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import Mode, init_stats, update_stats
from istanas_jax.networks.cells import CellPlan
from istanas_jax.networks.operations import Weights, max_norms
from istanas_jax.networks.variables import declare_weights
from istanas_jax.space.connections import num_edges, num_predecessors, stride_of
from istanas_jax.space.layers import NormRegime
from istanas_jax.space.spaces import Space

GROUP_NAMES = {False: ("edges",), True: ("edges_from_inputs", "edges_from_nodes")}


@dataclass(frozen=True)
class CellSpec:
    """All that is static about a super-net's cell.

    Edges that leave an input have stride 2 in a reduction cell, and other weights than the rest
    (a skip-connection of stride 2 is a factorised reduction). So edges come in groups, one per
    stride, and within a group all edges have weights of the same shapes.

    With `shared`, all edges of a group use one set of weights per operation.

    Only `dense` uses partial channels, candidates that differ between edges, and `recompute`.
    """

    channels: int
    reduction: bool
    space: Space
    regime: NormRegime
    partial: int = 1  # operations see one channel in so many
    candidates: tuple[tuple[int, ...], ...] | None = None  # operation numbers per edge; None: all
    recompute: bool = False  # operations run again in the backward pass
    shared: bool = False
    slots: int = 0  # of a node; 0: as many as the connections that it keeps

    def __post_init__(self):
        part, over = divmod(self.channels, self.partial)
        if over or (self.reduction and part % 2):
            even = "an even number" if self.reduction else "a whole number"
            raise ValueError(
                f"operations see one in {self.partial} of {self.channels} channels, which must be "
                f"{even} of channels"
            )

    @property
    def num_nodes(self) -> int:
        return self.space.nodes

    @property
    def s(self) -> int:
        """Slots of a node."""
        return self.slots or self.space.most

    @property
    def op_channels(self) -> int:
        """Number of channels each operation receives."""
        return self.channels // self.partial

    @property
    def strides(self) -> tuple[int, ...]:
        return (2, 1) if self.reduction else (1,)

    @property
    def groups(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The edges of each group as (node, predecessor), in order."""
        edges = [(j, i) for j in range(self.num_nodes) for i in range(num_predecessors(j))]
        return tuple(
            tuple(edge for edge in edges if stride_of(edge[1], self.reduction) == stride)
            for stride in self.strides
        )

    def num_sets(self, group: int) -> int:
        """Number of sets of weights that an operation has in a group."""
        return 1 if self.shared else len(self.groups[group])

    def group(self, predecessor: int) -> int:
        """Index of the group that the edges leaving this predecessor belong to."""
        return self.strides.index(stride_of(predecessor, self.reduction))

    def place(self, group: int, node: int, predecessor: int) -> int:
        """Index of the set of weights that an edge of the group uses."""
        return 0 if self.shared else self.groups[group].index((node, predecessor))

    def shapes(self, op: str, stride: int) -> dict[str, tuple[int, ...]]:
        return operations.weight_shapes(op, self.op_channels, stride, self.regime)

    @property
    def vector_size(self) -> int:
        """Length of the vector that holds the weights of the largest operation."""
        sizes = (self.shapes(op, t).values() for op in self.space.operations for t in self.strides)
        return max(sum(map(math.prod, shapes)) for shapes in sizes)


class CellVariables(NamedTuple):
    """The values of a cell's variables; cells of equal shapes can be stacked and scanned over."""

    pre0: Weights
    pre1: Weights
    groups: tuple[
        dict[str, Weights], ...
    ]  # per group of edges and operation, stacked over its sets
    pre_stats: Float[Array, "2 norms=1 2 C"]
    stats: Float[Array, "edges ops norms 2 C"]


class _EdgeGroup(nn.Module):
    """Weights of all operations on a group of edges."""

    spec: CellSpec
    group: int

    @nn.compact
    def __call__(self) -> dict[str, Weights]:
        stride, size = self.spec.strides[self.group], self.spec.num_sets(self.group)
        return {
            op: _Stacked(tuple(shapes.items()), (size,), name=op)()
            for op in self.spec.space.operations
            if (shapes := self.spec.shapes(op, stride))
        }


class _Stacked(nn.Module):
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    stack: tuple[int, ...] = ()

    @nn.compact
    def __call__(self) -> Weights:
        return declare_weights(self, dict(self.shapes), self.stack)


class SuperCell(nn.Module):
    """Owns the variables of a cell with all candidates; `run_cell` computes with them."""

    plan: CellPlan
    spec: CellSpec

    def setup(self):
        plan, spec = self.plan, self.spec
        for name, channels, halve in (
            ("pre0", plan.in0, plan.halve),
            ("pre1", plan.in1, False),
        ):
            shapes = operations.preprocess_shapes(channels, plan.channels, halve, spec.regime)
            setattr(self, name, _Stacked(tuple(shapes.items())))
        for group, name in enumerate(GROUP_NAMES[plan.reduction]):
            setattr(self, name, _EdgeGroup(spec, group))
        edges, c, part = num_edges(spec.num_nodes), plan.channels, spec.op_channels
        norms = max_norms(spec.space.operations)
        self.pre_moments = self.variable(
            "batch_stats", "pre_stats", lambda: jnp.stack([init_stats(1, c)] * 2)
        )
        self.moments = self.variable(
            "batch_stats",
            "stats",
            lambda: jnp.broadcast_to(
                init_stats(norms, part)[None, None],
                (edges, spec.space.num_ops, norms, 2, part),
            ),
        )

    def __call__(self) -> CellVariables:
        groups = tuple(getattr(self, name)() for name in GROUP_NAMES[self.plan.reduction])
        return CellVariables(
            self.pre0(), self.pre1(), groups, self.pre_moments.value, self.moments.value
        )

    def move_stats(self, pre_stats: Array, stats: Array) -> None:
        self.pre_moments.value, self.moments.value = pre_stats, stats


def preprocess(cell: CellVariables, s0, s1, mode: Mode):
    x0, stats0 = operations.preprocess(s0, cell.pre0, cell.pre_stats[0], mode=mode)
    x1, stats1 = operations.preprocess(s1, cell.pre1, cell.pre_stats[1], mode=mode)
    return x0, x1, update_stats(cell.pre_stats, jnp.stack([stats0, stats1]))


def output(nodes: Float[Array, "nodes B H W C"]) -> Float[Array, "B H W nodes*C"]:
    return jnp.moveaxis(nodes, 0, 3).reshape(*nodes.shape[1:4], -1)
