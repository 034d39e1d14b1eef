"""Nodes, predecessors and connections of a cell, and the symbols of the whole project.

A cell has two input nodes, 0 and 1 (the outputs of the two cells before it), and intermediate
nodes. Here `node` counts the intermediate nodes from 0, as the arrays do, and `predecessor` counts
the inputs as well: intermediate node j is predecessor j + 2 of the nodes after it.

| paper | code         | shape      | meaning                                                      |
|-------|--------------|------------|--------------------------------------------------------------|
| K     | num_ops      |            | operations of an edge: 7 in the space of DARTS               |
| n_j   | n            |            | candidates of a node: (node + 2) * K = 14, 21, 28, 35        |
| b_j   | b            | (m,)       | trainable architecture variables, m = 7                      |
| A_j   | A            | (m, n)     | sampled once, U[0, 1), fixed for the run                     |
| E_j   | E            | (n, n)     | A^T A - I                                                    |
| z_j   | z            | (n,)       | solution of the LASSO                                        |
| S_j   | support      | (s,)       | the s = 2 largest abs(z), strongest first, as flat indices   |
| w_S   | coefficients | (s,)       | b^T A_S - z_S^T E_SS                                         |

`search_space.Space` says what a flat index means. Functions marked "arithmetic only" take whole
numbers or arrays of them alike.
"""

from __future__ import annotations

from typing import NamedTuple

NUM_INPUTS = 2
CELL_TYPES = ("normal", "reduction")  # in the order of the first axis of arrays

# Arrays list a node's picks strongest first, genotypes list the weakest first. Either list (or last
# axis), sliced by this, is in the other order.
OTHER_ORDER = slice(None, None, -1)


class Connection(NamedTuple):
    """One operation on one predecessor, in the order in which DARTS writes the pair."""

    operation: str
    predecessor: int


def stride_of(predecessor: int, reduction: bool) -> int:
    """Stride of a connection: in a reduction cell, what reads an input halves it."""
    return 2 if reduction and predecessor < NUM_INPUTS else 1


def num_predecessors(node):
    """Nodes that may feed intermediate node `node`. Arithmetic only."""
    return node + NUM_INPUTS


def edge_index(node, predecessor):
    """Number of the edge predecessor -> node inside a cell. Arithmetic only.

    Edges run node by node, predecessors in order: 0, 1 | 2, 3, 4 | 5, 6, 7, 8 | ...
    """
    return node * (node + 2 * NUM_INPUTS - 1) // 2 + predecessor


def num_edges(num_nodes: int) -> int:
    """Edges of a cell with `num_nodes` intermediate nodes: 14 for 4 nodes."""
    return edge_index(_at_least_one(num_nodes, "nodes"), 0)


def reduction_cells(num_cells: int) -> frozenset[int]:
    """Positions of the reduction cells: a third and two thirds into the network.

    One cell is itself a reduction, and so are both of two cells; from 3 on there are exactly two.
    """
    num_cells = _at_least_one(num_cells, "cells")
    return frozenset({num_cells // 3, 2 * num_cells // 3})


def auxiliary_cell(num_cells: int) -> int:
    """Position of the cell that the auxiliary head follows: the last reduction cell."""
    return 2 * _at_least_one(num_cells, "cells") // 3


def _at_least_one(count: int, what: str) -> int:
    if count < 1:
        raise ValueError(f"the number of {what} is {count}, expected at least 1")
    return count
