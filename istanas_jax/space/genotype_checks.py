"""Checks of a genotype's parts; what is refused is refused in one sentence that names the place."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from istanas_jax.space.connections import NUM_INPUTS, Connection, num_predecessors
from istanas_jax.space.operations import BY_NAME, is_from_file
from istanas_jax.space.wording import show, suggest

Node = tuple[Connection, ...]
Cell = tuple[Node, ...]


class GenotypeError(ValueError):
    """A genotype that cannot be: one sentence that names the place."""


def check_cell(cell: Any, where: str) -> Cell:
    """The cell node by node, whichever of the two ways it is given in."""
    if not isinstance(cell, list | tuple) or not cell:
        raise GenotypeError(f"{where}: expected a non-empty list of nodes, found {show(cell)}")
    if _is_flat(cell):
        if len(cell) % 2:
            raise GenotypeError(
                f"{where}: a flat list has two connections per node, found {len(cell)} in all"
            )
        cell = [cell[i : i + 2] for i in range(0, len(cell), 2)]
    nodes = []
    for j, node in enumerate(cell):
        if not isinstance(node, list | tuple) or not node:
            raise GenotypeError(f"{where}, node {j}: expected its connections, found {show(node)}")
        nodes.append(
            tuple(
                _check_connection(pair, j, f"{where}, node {j}, {_ordinal(i)} connection")
                for i, pair in enumerate(node)
            )
        )
    return tuple(nodes)


def _is_flat(cell: Sequence) -> bool:
    """Whether the cell begins with a pair, and not with a node, which is a list of pairs."""
    first = cell[0]
    return (
        isinstance(first, list | tuple)
        and len(first) > 0
        and not any(isinstance(item, list | tuple) for item in first)
    )


def _check_connection(pair: Any, node: int, where: str) -> Connection:
    if not (isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)):
        raise GenotypeError(f"{where}: expected (operation, predecessor), found {show(pair)}")
    operation, predecessor = pair[0], whole(pair[1])
    if operation not in BY_NAME and not is_from_file(operation):
        raise GenotypeError(
            f"{where}: unknown operation {show(operation)}{suggest(operation, list(BY_NAME))}"
        )
    last = num_predecessors(node) - 1
    if predecessor is None:
        raise GenotypeError(f"{where}: predecessor {show(pair[1])} is not a whole number")
    if not 0 <= predecessor <= last:
        raise GenotypeError(
            f"{where}: predecessor {show(predecessor)} is out of range, expected 0 to {last}"
        )
    return Connection(operation, predecessor)


def check_concat(concat: Any, num_nodes: int, where: str) -> tuple[int, ...]:
    if not isinstance(concat, list | tuple | range) or not concat:
        raise GenotypeError(f"{where}: expected a non-empty list of nodes, found {show(concat)}")
    last = num_nodes + NUM_INPUTS - 1
    checked = []
    for item in concat:  # stops at the first bad one, so that an endless range costs nothing
        node = whole(item)
        if node is None:
            raise GenotypeError(f"{where}: {show(item)} is not a whole number")
        if not NUM_INPUTS <= node <= last:
            raise GenotypeError(
                f"{where}: node {show(node)} is out of range, expected {NUM_INPUTS} to {last}"
            )
        if node in checked:
            raise GenotypeError(f"{where}: node {node} is listed twice")
        checked.append(node)
    return tuple(checked)


def whole(value: Any) -> int | None:
    """The value as an int, or None; True and 1.0 are no node numbers."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _ordinal(i: int) -> str:
    return ("first", "second", "third")[i] if i < 3 else f"{i + 1}th"
