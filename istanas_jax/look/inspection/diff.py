"""What differs between two checkpoints: operations, z and b, weights."""

from __future__ import annotations

import os
from collections import Counter
from itertools import zip_longest

import numpy as np

from istanas_jax.look.inspection.arch import FIELDS, genotype_of
from istanas_jax.look.inspection.contents import (
    architecture,
    group_of,
    matching,
    norm,
    plain,
    short,
    space_of,
    what,
)
from istanas_jax.look.inspection.files import Checkpoint, open_checkpoint
from istanas_jax.space.connections import CELL_TYPES
from istanas_jax.space.genotype import Genotype
from istanas_jax.storage.files import as_path


def diff(
    a: str | os.PathLike,
    b: str | os.PathLike,
    *,
    inside: str | os.PathLike | None = None,
    params: str | None = None,
) -> dict:
    """Say what changed from checkpoint `a` to checkpoint `b`; each may be of any phase.

    Arrays are compared by their checksums, without reading them.

    Args:
      a, b: paths as `inspect` takes them, inside the folder `inside` if one is given.
      params: a pattern; arrays that match it and differ are read, to tell how far they moved.
        By default these are the parameters.
    """
    pair = tuple(open_checkpoint(x if inside is None else as_path(inside) / x) for x in (a, b))
    names, states = _compare(*pair)
    moved = [name for name in matching(names, params or "params") if states[name] == "moved"]
    results = {
        "a": {"path": os.fspath(pair[0].path), "what": what(pair[0])},
        "b": {"path": os.fspath(pair[1].path), "what": what(pair[1])},
        "pattern": params,
        "architecture": _architectures(*pair),
        "groups": _count(states),
        "moved": _distances(*pair, [names[name] for name in moved]),
    }
    return plain(results)


def _compare(a: Checkpoint, b: Checkpoint) -> tuple[dict[str, tuple], dict[str, str]]:
    """Names in both checkpoints and how the arrays compare, by short name; none is read."""
    ours, theirs = ({short(name): name for name in x.leaves} for x in (a, b))
    states = {}
    for name in ours | theirs:
        if name not in theirs or name not in ours:
            states[name] = "only_a" if name in ours else "only_b"
            continue
        (shape_a, crc_a), (shape_b, crc_b) = a.leaves[ours[name]], b.leaves[theirs[name]]
        same = "same" if crc_a == crc_b else "moved"
        states[name] = same if shape_a == shape_b else "other_shape"
    return {name: (ours.get(name), theirs.get(name)) for name in states}, states


def _count(states: dict[str, str]) -> dict[str, dict[str, int]]:
    """Count the arrays of each group that are the same, moved, reshaped, or in one only."""
    counts: dict[str, Counter] = {}
    for name, state in states.items():
        counts.setdefault(group_of(name), Counter())[state] += 1
    every = ("same", "moved", "other_shape", "only_a", "only_b")
    return {group: {state: count[state] for state in every} for group, count in counts.items()}


def _distances(a: Checkpoint, b: Checkpoint, names: list[tuple[str, str]]) -> list[dict]:
    """How far each of these arrays moved."""
    both = zip(
        a.each(ours for ours, _ in names), b.each(theirs for _, theirs in names), strict=True
    )
    rows = []
    for (name, x), (_, y) in both:
        before = norm(x)
        distance = norm(y.astype(np.float64) - x.astype(np.float64))
        rows.append(
            {
                "name": short(name),
                "distance": distance,
                "norm": before,
                "relative": distance / before if before else None,
            }
        )
    return rows


def _architectures(a: Checkpoint, b: Checkpoint) -> dict | None:
    """List per node the operations that came and went, and between searches how z and b moved."""
    arches = [_arch(x) for x in (a, b)]
    cells = [_cells(x, arch) for x, arch in zip((a, b), arches, strict=True)]
    if None in cells:
        return None
    comparable = all(arches) and arches[0]["b"].shape == arches[1]["b"].shape
    nodes = []
    for c, cell_type in enumerate(CELL_TYPES):
        for j, (ours, theirs) in enumerate(zip_longest(cells[0][c], cells[1][c], fillvalue=())):
            node = {"cell": cell_type, "node": j}
            node["removed"] = [x._asdict() for x in (Counter(ours) - Counter(theirs)).elements()]
            node["added"] = [x._asdict() for x in (Counter(theirs) - Counter(ours)).elements()]
            if comparable:
                node["frozen"] = [bool(arch["frozen"][c, j]) for arch in arches]
                for field in ("z", "b"):
                    x, y = (arch[field][c, j] for arch in arches)
                    node[f"{field}_distance"] = norm(y.astype(np.float64) - x)
            nodes.append(node)
    same_A = bool(np.array_equal(arches[0]["A"], arches[1]["A"])) if comparable else None
    return {"same_A": same_A, "nodes": nodes}


def _arch(checkpoint: Checkpoint) -> dict[str, np.ndarray] | None:
    names = [f"arch.{field}" for field in FIELDS]
    if not all(name in checkpoint.leaves for name in names):
        return None
    arrays = checkpoint.read(names)
    return {field: arrays[f"arch.{field}"] for field in FIELDS}


def _cells(checkpoint: Checkpoint, arch: dict[str, np.ndarray] | None):
    """The normal and the reduction cell; None if they are not known."""
    if arch is not None:
        genotype = genotype_of(arch["support"], space_of(checkpoint))
    elif (found := architecture(checkpoint, {})) is not None:
        genotype = Genotype.from_dict(found["genotype"])
    else:
        return None
    return genotype.normal, genotype.reduce
