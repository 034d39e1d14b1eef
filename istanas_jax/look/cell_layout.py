"""Where the nodes and edges of a drawn cell go.

Nodes stand in columns by their depth. An edge that passes a column has a lane of its own there,
and bends only between columns. Orders and heights are chosen for few crossings and little
climbing: Sugiyama's method. No x here: `drawing` sets it, column by column.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

ROW, LANE, SPACE = 27, 10, 14  # heights of a connection and of a lane, space around a node
LEVEL = (1, 2, 8)  # weights of parts with 0, 1 and 2 ends in lanes


@dataclass(eq=False)
class Box:
    """What takes up height in a column: a node, or the lane of an edge that passes."""

    node: int | None
    height: float = LANE
    y: float = 0.0
    ins: list[Hop] = field(default_factory=list)
    outs: list[Hop] = field(default_factory=list)
    rank: int = 0  # place in the column, from the top

    @property
    def row(self) -> float:
        """Distance between two edges that arrive: operations need room for their names."""
        return ROW if self.ins and self.ins[0].edge.operation else LANE + 2


@dataclass(eq=False)
class Edge:
    source: int
    target: int
    operation: str | None = None  # None: to the output
    coefficient: float | None = None
    hops: list[Hop] = field(default_factory=list)


@dataclass(eq=False)
class Hop:
    """The part of an edge between two neighbouring columns."""

    edge: Edge
    left: Box
    right: Box

    @property
    def weight(self) -> float:
        """How much it matters that this part be level: lanes should not meander."""
        return LEVEL[(self.left.node is None) + (self.right.node is None)]

    @property
    def start(self) -> float:
        """Height at which the edge leaves the box on its left."""
        outs = self.left.outs
        return self.left.y + (outs.index(self) - (len(outs) - 1) / 2) * (LANE - 1)

    @property
    def end(self) -> float:
        """Height at which the edge arrives at the box on its right."""
        ins = self.right.ins
        return self.right.y + (ins.index(self) - (len(ins) - 1) / 2) * self.right.row


def lay_out(edges: list[Edge], output: int) -> list[list[Box]]:
    """Return columns of boxes, top first, with heights and y's: the best of a few attempts.

    Args:
      edges: sorted by target; each is given its hops.
      output: the number of the last node.
    """
    columns = _columns(edges, output)
    best = None
    for attempt in range(12):
        if attempt:
            for column in columns:
                random.Random(attempt).shuffle(column)
        crossings = _order(columns)
        _place(columns, sweeps=6)
        climb = sum(abs(hop.start - hop.end) for edge in edges for hop in edge.hops)
        if best is None or (crossings, climb) < best[0]:
            best = (crossings, climb), [list(column) for column in columns]
    columns = best[1]
    _rank(columns)
    if columns[0][0].node != 0:  # upside down is as good, and has the inputs in order
        columns = [column[::-1] for column in columns]
        _rank(columns)
    _place(columns, sweeps=40)
    return columns


def _columns(edges: list[Edge], output: int) -> list[list[Box]]:
    """Arrange nodes by depth, with a lane for every edge in every column that it passes."""
    depth = [0] * (output + 1)
    for edge in edges:  # sorted by target, so the depth of each source is final
        depth[edge.target] = max(depth[edge.target], depth[edge.source] + 1)
    depth[output] = max(depth[:output]) + 1
    columns = [[] for _ in range(depth[output] + 1)]
    boxes = [Box(node) for node in range(output + 1)]
    for box in boxes:
        columns[depth[box.node]].append(box)
    for edge in edges:
        path = [boxes[edge.source]]
        for column in columns[depth[edge.source] + 1 : depth[edge.target]]:
            path.append(Box(None))
            column.append(path[-1])
        path.append(boxes[edge.target])
        edge.hops = [Hop(edge, left, right) for left, right in pairwise(path)]
        for hop in edge.hops:
            hop.left.outs.append(hop)
            hop.right.ins.append(hop)
    for box in boxes:
        box.height = max(34, len(box.ins) * box.row, (len(box.outs) + 1) * (LANE - 1))
    return columns


def _order(columns: list[list[Box]]) -> int:
    """Reduce crossings by mean places of neighbours, then by swaps; return how many are left."""
    _rank(columns)
    for sweep in range(8):
        for column in columns[1:] if sweep % 2 == 0 else columns[-2::-1]:
            mean = {box: _mean_rank(box, sweep % 2 == 0) for box in column}
            column.sort(key=mean.get)
            _rank([column])
    improved = True
    while improved:
        improved = False
        for column in columns:
            for i in range(len(column) - 1):
                before = _pair_crossings(column[i], column[i + 1])
                if _pair_crossings(column[i + 1], column[i]) < before:
                    column[i], column[i + 1] = column[i + 1], column[i]
                    _rank([column])
                    improved = True
    return sum(
        _pair_crossings(above, below, ("outs",))
        for column in columns
        for i, above in enumerate(column)
        for below in column[i + 1 :]
    )


def _rank(columns: list[list[Box]]) -> None:
    for column in columns:
        for rank, box in enumerate(column):
            box.rank = rank


def _mean_rank(box: Box, to_left: bool) -> float:
    ranks = [hop.left.rank for hop in box.ins] if to_left else [hop.right.rank for hop in box.outs]
    return sum(ranks) / len(ranks) if ranks else box.rank


def _pair_crossings(above: Box, below: Box, sides=("ins", "outs")) -> int:
    """Count crossings among the edges of two boxes of a column, if one stands above the other."""
    total = 0
    for side in sides:
        far = "left" if side == "ins" else "right"
        total += sum(
            getattr(one, far).rank > getattr(other, far).rank
            for one in getattr(above, side)
            for other in getattr(below, side)
        )
    return total


def _place(columns: list[list[Box]], sweeps: int) -> None:
    """Set every y near the neighbours' without changing the order; edges leave in order, too."""
    for column in columns:
        for box in column:
            box.outs.sort(key=lambda hop: hop.right.rank)
            box.ins.sort(key=lambda hop: (hop.left.rank, hop.left.outs.index(hop)))
            box.y = 0.0
    for sweep in range(sweeps):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            _spread(column)


def _spread(column: list[Box]) -> None:
    """Place boxes where neighbours pull, without overlap: weighted isotonic regression."""
    blocks: list[tuple[float, float, int]] = []  # weight, mean, number of boxes
    offset, offsets = 0.0, []
    for above, box in zip([None, *column], column, strict=False):
        if above is not None:
            space = 0 if above.node is box.node is None else SPACE
            offset += (above.height + box.height) / 2 + space
        offsets.append(offset)
        pulls = [(hop.weight, hop.start - hop.end) for hop in box.ins]
        pulls += [(hop.weight, hop.end - hop.start) for hop in box.outs]
        weight = sum(weight for weight, _ in pulls) or 1e-3  # a node that nothing pulls
        wanted = box.y + sum(weight * pull for weight, pull in pulls) / weight
        blocks.append((weight, wanted - offset, 1))
        while len(blocks) > 1 and blocks[-2][1] >= blocks[-1][1]:
            (w0, mean0, n0), (w1, mean1, n1) = blocks[-2:]
            blocks[-2:] = [(w0 + w1, (w0 * mean0 + w1 * mean1) / (w0 + w1), n0 + n1)]
    means = [mean for _, mean, count in blocks for _ in range(count)]
    for box, mean, offset in zip(column, means, offsets, strict=True):
        box.y = mean + offset
