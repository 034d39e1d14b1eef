"""A search space: which connections a cell may have, and how they are numbered.

A space is data: operations, nodes, and how many connections each node keeps. It holds the only map
between a flat index and its (predecessor, operation). Methods marked "arithmetic only" take whole
numbers or arrays of them alike. `spaces` has those that go by a name.

With `auxiliary_skip` among its operations every connection that a node keeps has a skip-connection
beside it, of weight 1. It is never chosen, so supports leave it out.

Where nodes keep different numbers of connections, arrays are as wide as the largest of them: a
support repeats a node's last pick, whose coefficient there is 0.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from istanas_jax.space.connections import (
    CELL_TYPES,
    Connection,
    edge_index,
    num_edges,
    num_predecessors,
)
from istanas_jax.space.operations import AUXILIARY_SKIP, find_operation, is_from_file

Candidates = tuple[tuple[tuple[str, ...], ...], ...]  # per cell type and edge, names in order


class SpaceError(ValueError):
    """A space that cannot be: one sentence."""


@dataclass(frozen=True)
class Space:
    """A search space, checked on construction, immutable and hashable.

    >>> Space("small", ("skip_connect", "sep_conv_3x3"), nodes=2).connection(5)
    Connection(operation='sep_conv_3x3', predecessor=2)
    """

    name: str
    operations: tuple[str, ...]  # their order gives them their numbers
    nodes: int = 4
    s: int | tuple[int, ...] = 2  # connections that a node keeps, of all nodes or of each
    distinct: bool = False  # those of a node must have different predecessors
    candidates: Candidates | None = None  # the operations of each edge, if not all
    alike: bool = False  # both cell types have the same connections
    zero: bool = True  # DARTS and its descendants also weigh zero, never kept

    def __post_init__(self):
        for name in self.operations:
            if not is_from_file(name):  # looking at a run does not run its files
                find_operation(name)
        for problem in self._problems():
            raise SpaceError(f"space {self.name}: {problem}")

    def _problems(self) -> Iterable[str]:
        if not self.operations:
            yield "there are no operations"
        if len(set(self.operations)) < len(self.operations):
            yield f"an operation is listed twice among {', '.join(self.operations)}"
        if self.nodes < 1:
            yield f"the number of nodes is {self.nodes}, expected at least 1"
        if isinstance(self.s, tuple) and len(self.s) != self.nodes:
            yield f"s has {len(self.s)} numbers, but there are {self.nodes} nodes"
        if self.auxiliary and (self.uneven or not self.distinct):
            yield (
                f"{AUXILIARY_SKIP} needs distinct = True and the same s at every node: it belongs "
                "to an edge"
            )
        yield from self._edge_problems()
        for node in range(self.nodes):
            for cell_type, cell in enumerate(CELL_TYPES):
                where = f"node {node} of the {cell} cell"
                s, some = self.kept(node), self.candidates_of(cell_type, node)
                if not 1 <= s <= len(some):
                    yield f"{where} keeps {s} connections, but it has {len(some)} candidates"
                if self.distinct and s > num_predecessors(node):
                    yield (
                        f"{where} keeps {s} connections of different predecessors, but it has "
                        f"{num_predecessors(node)}"
                    )

    def _edge_problems(self) -> Iterable[str]:
        if self.candidates is None:
            return
        if tuple(map(len, self.candidates)) != (num_edges(self.nodes),) * len(CELL_TYPES):
            yield f"candidates must be given for all {num_edges(self.nodes)} edges of both cells"
        for cell, edges in zip(CELL_TYPES, self.candidates, strict=True):
            for edge, names in enumerate(edges):
                if not names:
                    yield f"edge {edge} of the {cell} cell has no candidates"
                if unknown := [name for name in names if name not in self.operations]:
                    yield (
                        f"{unknown[0]} is a candidate of edge {edge} of the {cell} cell, but not "
                        "among the operations"
                    )
                if AUXILIARY_SKIP in names:
                    yield f"{AUXILIARY_SKIP} is a candidate of edge {edge} of the {cell} cell"
        if self.alike and self.candidates[0] != self.candidates[1]:
            yield "both cells are alike, but their candidates are not"

    # Numbers of connections.

    @property
    def num_ops(self) -> int:
        """K: operations that an edge can have."""
        return len(self.operations)

    def flat_index(self, predecessor, op):
        """Flat index of operation number `op` on a predecessor. Arithmetic only."""
        return predecessor * self.num_ops + op

    def split_index(self, flat):
        """(predecessor, operation number) of a flat index. Arithmetic only."""
        return flat // self.num_ops, flat % self.num_ops

    def connection(self, flat: int) -> Connection:
        """The connection that a flat index stands for."""
        flat = operator.index(flat)
        if flat < 0:
            raise ValueError(f"flat index {flat} is negative")
        predecessor, op = self.split_index(flat)
        return Connection(self.operations[op], predecessor)

    def flat(self, connection: Connection) -> int:
        """Index among a node's candidates; a ValueError if the space lacks the operation."""
        if connection.operation not in self.operations:
            raise ValueError(
                f"operation {connection.operation!r} is not among the {self.num_ops} candidates: "
                + ", ".join(self.operations)
            )
        return self.flat_index(connection.predecessor, self.operations.index(connection.operation))

    def num_candidates(self, node):
        """n_j: flat indices of intermediate node `node`. Arithmetic only."""
        return num_predecessors(node) * self.num_ops

    @property
    def max_candidates(self) -> int:
        """n_j of the last node: the length that holds every node's candidates."""
        return self.num_candidates(self.nodes - 1)

    # What runs beside the connections of a node.

    @property
    def auxiliary(self) -> bool:
        """Whether a skip-connection runs beside every connection that is kept."""
        return AUXILIARY_SKIP in self.operations

    def beside(self, flat):
        """Flat index of the skip-connection beside a connection. Arithmetic only."""
        predecessor, _ = self.split_index(flat)
        return self.flat_index(predecessor, self.operations.index(AUXILIARY_SKIP))

    def everything_at(self, cell_type: int, node: int) -> list[int]:
        """The flat indices of a node that have weights: its candidates, and what runs beside."""
        some = self.candidates_of(cell_type, node)
        return some + sorted(set(map(self.beside, some))) if self.auxiliary else some

    # What a node may have and keeps.

    def candidates_of(self, cell_type: int, node: int) -> list[int]:
        """The flat indices that a node can choose from, in order."""
        if self.numbers is None:
            return list(range(self.num_candidates(node)))
        edges = self.numbers[cell_type][edge_index(node, 0) : edge_index(node + 1, 0)]
        return [self.flat_index(i, op) for i, ops in enumerate(edges) for op in ops]

    @cached_property
    def numbers(self) -> tuple[tuple[tuple[int, ...], ...], ...] | None:
        """The candidates as numbers of operations, in rising order; None: all."""
        if self.candidates is None and not self.auxiliary:
            return None
        everything = tuple(name for name in self.operations if name != AUXILIARY_SKIP)
        index = self.operations.index
        return tuple(
            tuple(tuple(sorted(map(index, names))) for names in edges)
            for edges in self.candidates or [[everything] * num_edges(self.nodes)] * len(CELL_TYPES)
        )

    @cached_property
    def exists(self) -> tuple[tuple[tuple[bool, ...], ...], ...]:
        """Per cell type, node and flat index up to `max_candidates`: whether it can be chosen."""
        return tuple(
            tuple(
                tuple(flat in some for flat in range(self.max_candidates))
                for some in (set(self.candidates_of(cell_type, j)) for j in range(self.nodes))
            )
            for cell_type in range(len(CELL_TYPES))
        )

    def kept(self, node: int) -> int:
        """The number of connections that a node keeps."""
        return self.s[node] if isinstance(self.s, tuple) else self.s

    @property
    def most(self) -> int:
        """The largest number of connections that a node keeps: the width of arrays."""
        return max(map(self.kept, range(self.nodes)))

    @property
    def uneven(self) -> bool:
        """Whether nodes keep different numbers of connections."""
        return any(self.kept(node) != self.most for node in range(self.nodes))

    @property
    def ranks(self) -> list[list[int]]:
        """Per node, which pick stands in each column: the last one repeats."""
        return [
            [min(k, self.kept(node) - 1) for k in range(self.most)] for node in range(self.nodes)
        ]

    @property
    def own_columns(self) -> list[list[bool]]:
        """Per node, which columns hold a connection of its own and do not repeat one."""
        return [[k < self.kept(node) for k in range(self.most)] for node in range(self.nodes)]

    def own(self, rows: Iterable[Sequence]) -> list[Sequence]:
        """The rows of a cell's nodes without the columns that only fill an array up."""
        return [row[: self.kept(node)] for node, row in enumerate(rows)]

    def without_order(self, supports: Iterable[Iterable[Sequence[int]]]) -> list[list[list[int]]]:
        """Per cell and node the flat indices, sorted: equal if the connections are."""
        return [[sorted(map(int, node)) for node in self.own(cell)] for cell in supports]

    def weight_free(self, support: Iterable[Sequence[int]]) -> int:
        """How many connections of a cell have no weights, given the flat indices of its nodes."""
        return sum(
            find_operation(self.connection(flat).operation).weight_free
            for node in self.own(support)
            for flat in node
        )

    # In files.

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Space:
        """Read what `to_dict` gives, and check it."""
        known = {field.name for field in fields(cls)}
        try:
            return cls(**{key: frozen(content[key]) for key in known if key in content})
        except TypeError:
            raise SpaceError("a search space has values of the wrong types") from None


def _plain(value):
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def frozen(value):
    """Lists, also inside of others, as tuples."""
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value
