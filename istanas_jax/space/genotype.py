"""Genotypes: the cells that a search finds, their text forms, and the published ones by name.

A cell is a tuple of nodes and a node a tuple of s connections, the weaker pick first as the
released code lists them. In all published cells a node has 2 connections. A genotype names its
operations and needs no search space to be read.

    >>> load("ISTA_twostage").normal[0][1]
    Connection(operation='dil_conv_3x3', predecessor=1)

In error messages a node is counted from 0 among the intermediate nodes; predecessors and concat
count the two inputs as well, as DARTS does.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import random
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from istanas_jax.space.connections import NUM_INPUTS, OTHER_ORDER, Connection
from istanas_jax.space.genotype_checks import (
    Cell,
    GenotypeError,
    check_cell,
    check_concat,
    whole,
)
from istanas_jax.space.genotype_text import MAX_TEXT, read_darts, read_json
from istanas_jax.space.operations import AUXILIARY_SKIP, find_operation
from istanas_jax.space.published import CELLS, PARAMETERS
from istanas_jax.space.spaces import DARTS, Space
from istanas_jax.space.wording import show, suggest

FIELDS = ("normal", "reduce")  # what a genotype calls its two cells
SPACE = "space"  # what a file calls the space that a genotype was found in
Support = tuple[tuple[int, ...], ...]  # per node its flat indices, strongest first


class ParameterCounts(NamedTuple):
    """Exact sizes of a published genotype's networks; `published.py` says what is counted."""

    cifar10_36x20: int
    imagenet_48x14: int


@dataclass(frozen=True)
class Genotype:
    """A normal and a reduction cell, checked on construction, immutable and hashable.

    A cell may be given node by node, or as DARTS does, as a flat list of (operation, predecessor)
    pairs of which each two make a node. `*_concat` are the nodes whose outputs, concatenated in
    that order, are the cell's output.

    >>> cell = [("skip_connect", 0), ("sep_conv_3x3", 1)]
    >>> cells = Genotype(cell, [2], cell, [2])
    >>> cells.normal
    ((Connection(operation='skip_connect', predecessor=0),
      Connection(operation='sep_conv_3x3', predecessor=1)),)
    >>> Genotype.from_json(cells.to_json()) == cells
    True
    """

    normal: Cell
    normal_concat: tuple[int, ...]
    reduce: Cell
    reduce_concat: tuple[int, ...]

    def __post_init__(self):
        for field in FIELDS:
            object.__setattr__(self, field, check_cell(getattr(self, field), f"{field} cell"))
        for field in FIELDS:
            cell = getattr(self, field)
            key = f"{field}_concat"
            concat = check_concat(getattr(self, key), len(cell), f"{field} concat")
            object.__setattr__(self, key, concat)

    def __str__(self) -> str:
        return self.to_text()

    def to_json(self) -> str:
        """JSON, one line per field; nodes are nested lists unless all have 2."""
        lines = [
            f" {json.dumps(key)}: {json.dumps(value)}" for key, value in self.to_dict().items()
        ]
        return "{\n" + ",\n".join(lines) + "\n}"

    @classmethod
    def from_json(cls, text: str) -> Genotype:
        return cls.from_dict(read_json(text))

    def to_text(self) -> str:
        """The text that DARTS prints; nodes are nested lists unless all have 2."""
        parts = []
        for key, value in self.to_dict().items():
            contiguous = key.endswith("_concat") and value == list(range(value[0], value[-1] + 1))
            shown = f"range({value[0]}, {value[-1] + 1})" if contiguous else value
            parts.append(f"{key}={shown}")
        return f"Genotype({', '.join(parts)})"

    @classmethod
    def from_text(cls, text: str) -> Genotype:
        """Reads what DARTS prints, `Genotype(normal=[('skip_connect', 0), ...], ...)`."""
        return cls.from_dict(read_darts(text))

    def supports(self, space: Space = DARTS) -> tuple[Support, Support]:
        """(normal, reduce): per node its connections as flat indices, strongest first.

        The concat is not part of it. Refuses operations that the space does not have.
        """
        return (
            _support(self.normal, space, "normal cell"),
            _support(self.reduce, space, "reduce cell"),
        )

    @classmethod
    def from_supports(
        cls,
        normal: Iterable[Sequence[int]],
        reduce: Iterable[Sequence[int]],
        space: Space = DARTS,
    ) -> Genotype:
        """The genotype of two supports, every intermediate node in the concat.

        normal, reduce: per node its flat indices, strongest first; arrays (nodes, s) will do.
        """
        normal = _from_support(normal, space, "normal cell")
        reduce = _from_support(reduce, space, "reduce cell")
        return cls(
            normal=normal,
            normal_concat=range(NUM_INPUTS, NUM_INPUTS + len(normal)),
            reduce=reduce,
            reduce_concat=range(NUM_INPUTS, NUM_INPUTS + len(reduce)),
        )

    def to_dict(self) -> dict[str, list]:
        """The fields as lists, strings and whole numbers, a cell flat if every node has 2."""
        flat = all(len(node) == 2 for field in FIELDS for node in getattr(self, field))
        plain = {}
        for field in FIELDS:
            nodes = [[tuple(connection) for connection in node] for node in getattr(self, field)]
            plain[field] = [pair for node in nodes for pair in node] if flat else nodes
            plain[f"{field}_concat"] = list(getattr(self, f"{field}_concat"))
        return plain

    @property
    def digest(self) -> str:
        """A hash that is the same in every process, for naming what is made of the genotype."""
        return hashlib.sha256(json.dumps(self.to_dict()).encode()).hexdigest()[:16]

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Genotype:
        """Read what `to_dict` gives, and check it; a space may be named beside it."""
        known = [field.name for field in fields(cls)]
        content = {key: value for key, value in content.items() if key != SPACE}
        for key in content:
            if key not in known:
                raise GenotypeError(f"unknown field {show(key)}{suggest(key, known)}")
        for key in known:
            if key not in content:
                raise GenotypeError(f"the field {key!r} is missing")
        return cls(**content)


def weight_free(genotype: Genotype) -> list[int]:
    """How many chosen connections of the normal and the reduction cell have no weights."""
    return [
        sum(
            find_operation(c.operation).weight_free and c.operation != AUXILIARY_SKIP
            for node in cell
            for c in node
        )
        for cell in (genotype.normal, genotype.reduce)
    ]


def in_order_of(genotype: Genotype, coefficients: Iterable[Iterable[Sequence]]) -> list[list[list]]:
    """Coefficients of both cells, strongest first, in the order of the genotype's connections.

    What only fills an array up, where nodes have different numbers of connections, is left out;
    what runs beside the chosen connections has 1.
    """
    return [
        [
            [*row[: len(node)], *[1.0] * (len(node) - len(row))][OTHER_ORDER]
            for row, node in zip(rows, cell, strict=True)
        ]
        for rows, cell in zip(coefficients, (genotype.normal, genotype.reduce), strict=True)
    ]


def load(spec: str | os.PathLike) -> Genotype:
    """A genotype by published name, as JSON or DARTS text, or from a file that holds either.

    `random:SEED` is drawn at random. A published name wins over a file of the same name.
    """
    path = os.fspath(spec)
    if isinstance(spec, str):
        if spec in CELLS:
            return published()[spec]
        if spec.lstrip().startswith(("{", "Genotype(")):
            return _parse(spec)
        if number := re.fullmatch(r"random:(\d+)", spec):
            return random_genotype(int(number[1]))
        if not os.path.exists(path):
            raise GenotypeError(
                f"unknown genotype {show(spec)}{suggest(spec, list(CELLS), n=3)}; accepted are "
                "a published name, the path of an existing file, JSON or DARTS text, random:SEED"
            )
    try:
        with open(path, encoding="utf-8-sig") as file:
            return _parse(file.read(MAX_TEXT + 1))
    except UnicodeDecodeError:
        raise GenotypeError(f"{path}: not a text file") from None
    except OSError as error:
        raise GenotypeError(f"{path}: {error.strerror}") from None
    except GenotypeError as error:
        raise GenotypeError(f"{path}: {error}") from None


def random_genotype(seed: int, space: Space = DARTS) -> Genotype:
    """Cells drawn uniformly from the search space: each node takes some of its candidates."""
    draw = random.Random(seed)

    def node(cell_type: int, j: int) -> list[int]:
        while True:
            picks = draw.sample(space.candidates_of(cell_type, j), space.kept(j))
            if not space.distinct or len({flat // space.num_ops for flat in picks}) == len(picks):
                return picks

    cells = [[node(c, j) for j in range(space.nodes)] for c in range(1 if space.alike else 2)]
    return Genotype.from_supports(cells[0], cells[-1], space)


@functools.cache
def published() -> Mapping[str, Genotype]:
    """The published genotypes by name, read-only."""
    return types.MappingProxyType({name: Genotype(**cells) for name, cells in CELLS.items()})


def published_parameters(name: str) -> ParameterCounts:
    """The documented exact sizes of the networks that a published genotype makes."""
    if name not in PARAMETERS:
        raise GenotypeError(f"unknown genotype {show(name)}{suggest(name, list(PARAMETERS), n=3)}")
    return ParameterCounts(*PARAMETERS[name])


def _parse(text: str) -> Genotype:
    is_json = text.lstrip().startswith("{")
    return Genotype.from_json(text) if is_json else Genotype.from_text(text)


def _support(cell: Cell, space: Space, where: str) -> Support:
    support = []
    for j, node in enumerate(cell):
        try:
            chosen = [c for c in node[OTHER_ORDER] if c.operation != AUXILIARY_SKIP]
            support.append(tuple(map(space.flat, chosen)))
        except ValueError as error:
            raise GenotypeError(f"{where}, node {j}: {error}") from None
    return tuple(support)


def _from_support(support: Iterable[Sequence[int]], space: Space, where: str) -> Cell:
    cell = []
    for j, indices in enumerate(support):
        last = space.num_candidates(j) - 1
        node = []
        for index in indices:
            flat = whole(index)
            if flat is None or not 0 <= flat <= last:
                raise GenotypeError(
                    f"{where}, node {j}: flat index {show(index)} is out of range, "
                    f"expected 0 to {last}"
                )
            node.append(space.connection(flat))
        node = node[: space.kept(j)] if space.uneven else node
        if space.auxiliary:
            node += [Connection(AUXILIARY_SKIP, connection.predecessor) for connection in node]
        cell.append(tuple(node[OTHER_ORDER]))
    return tuple(cell)
