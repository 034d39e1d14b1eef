"""The replay of a search for the page of its run: what replay.jsonl holds, made small.

`training.replay_row` says what a row holds. The page gets frames: z without its zeros, connections
in a fixed order, and the number of the drawing of each cell; equal drawings are stored once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from etils import epath

from istanas_jax.look import drawing
from istanas_jax.runs import metrics
from istanas_jax.runs.folder import REPLAY
from istanas_jax.space.connections import CELL_TYPES, OTHER_ORDER
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.spaces import DARTS, Space
from istanas_jax.training.replay_row import ReplayRow, missing_key

MAX_FRAMES = 600  # per page
MAX_BYTES = 2_200_000  # frames and drawings of a page, leaving room for the rest of 3 MB

Picks = tuple[tuple[int, ...], ...]  # per node its flat indices, in rising order


def read(workdir: epath.Path) -> dict[str, list[ReplayRow]]:
    """The rows by search, in the order of their steps; empty if the run has written none."""
    path = workdir / REPLAY
    searches: dict[str, list[ReplayRow]] = {}
    for row in metrics.read(path) if path.exists() else ():
        if missing := missing_key(row):
            raise ValueError(f"a row has no {missing}")
        searches.setdefault(row["phase"], []).append(row)
    return {phase: sorted(rows, key=lambda row: row["step"]) for phase, rows in searches.items()}


class Drawings:
    """Cells that were drawn, each different one once."""

    def __init__(self, space: Space = DARTS):
        self.space = space
        self.numbers: dict[tuple[int, Picks], int] = {}
        self.texts: list[str] = []
        self.size = 0  # all of them together, in characters

    def number(self, cell: int, picks: Picks) -> int:
        """The number of the drawing of this normal (0) or reduction (1) cell."""
        key = cell, picks
        if key not in self.numbers:
            self.numbers[key] = len(self.texts)
            # from_supports turns each node round: the drawing then has them in rising order again.
            support = [node[OTHER_ORDER] for node in picks]
            genotype = Genotype.from_supports(support, support, self.space)
            self.texts.append(drawing.cell_svg(genotype, CELL_TYPES[cell], inline=True))
            self.size += len(self.texts[-1])
        return self.numbers[key]


def replays(searches: Mapping[str, list[ReplayRow]], drawings: Drawings) -> list[dict]:
    """The frames of each search, few enough for a small page; cells go into `drawings`."""
    found = []
    for number, (phase, rows) in enumerate(searches.items()):
        left = len(searches) - number  # later searches may use what earlier ones did not need
        used = sum(len(replay["frames"]) for replay in found)
        spent = drawings.size + sum(map(_size, (replay["frames"] for replay in found)))
        kept = choose(
            rows, drawings, frames=(MAX_FRAMES - used) // left, size=(MAX_BYTES - spent) // left
        )
        found.append(
            {
                "phase": phase,
                "recoveries": len(rows),
                "nodes": len(rows[0]["support"][0]),
                "s": len(rows[0]["support"][0][0]),
                "frames": _frames(kept, drawings),
            }
        )
    return found


def choose(
    rows: Sequence[ReplayRow], drawings: Drawings, *, frames: int, size: int
) -> list[ReplayRow]:
    """The rows to show: first and last, then freezes, long-lived changes, ends of epochs."""
    kept: set[int] = set()
    frames = max(frames, 2)
    for index in _by_importance(rows):
        cost = _size(_frame(rows[index], None, drawings=None))
        if len(kept) >= frames or (cost > size and len(kept) >= 2):
            break
        before = drawings.size
        for cell, picks in enumerate(_picks(rows[index])):
            drawings.number(cell, picks)
        size -= cost + drawings.size - before
        kept.add(index)
    return [rows[index] for index in sorted(kept)]


def _by_importance(rows: Sequence[ReplayRow]) -> Iterable[int]:
    freezes, changes, others = [], [], []
    for index in range(1, len(rows) - 1):
        if rows[index]["frozen"] != rows[index - 1]["frozen"]:
            freezes.append(index)
        elif _picks(rows[index]) != _picks(rows[index - 1]):
            changes.append(index)
        else:
            others.append(index)
    starts = [*changes, len(rows) - 1]
    lasted = {a: rows[b]["step"] - rows[a]["step"] for a, b in pairwise(starts)}
    return [0, len(rows) - 1, *freezes, *sorted(changes, key=lasted.get, reverse=True), *others]


def _picks(row: ReplayRow) -> tuple[Picks, ...]:
    # A set: where nodes keep different numbers of connections, some repeat.
    return tuple(tuple(tuple(sorted(set(node))) for node in cell) for cell in row["support"])


def _frames(rows: Sequence[ReplayRow], drawings: Drawings) -> list[dict]:
    return [
        _frame(row, before, drawings=drawings)
        for before, row in zip([None, *rows], rows, strict=False)
    ]


def _frame(row: ReplayRow, before: ReplayRow | None, *, drawings: Drawings | None) -> dict:
    """What the page shows of a recovery; changes are those since the frame before it."""
    frame = {
        "step": row["step"],
        "epoch": row.get("epoch"),
        "z": [[_sparse(node) for node in cell] for cell in row["z"]],
        "picks": _picks(row),
        "w": [
            [_by_pick(*node) for node in zip(*cell, strict=True)]
            for cell in zip(row["support"], row["coefficients"], strict=True)
        ],
        "frozen": [[int(node) for node in cell] for cell in row["frozen"]],
        "distance": [[_short(node, 3) for node in cell] for cell in row.get("distance") or ()],
        "kkt": max(
            (_short(node, 2) or 0 for cell in row.get("kkt") or () for node in cell), default=None
        ),
        "budget": int(bool(row.get("budget_decided"))),
        "free": row.get("weight_free"),
        "percentile": row.get("percentile"),
    }
    if drawings is not None:
        frame["cells"] = [drawings.number(*cell) for cell in enumerate(frame["picks"])]
        frame["changed"] = [] if before is None else _changes(_picks(before), frame["picks"])
        frame["froze"] = [] if before is None else _froze(before["frozen"], row["frozen"])
    return frame


def _changes(before: Sequence[Picks], after: Sequence[Picks]) -> list[list]:
    """[cell, node, connections gone, connections added] for every node that changed."""
    return [
        [cell, node, sorted(set(old) - set(new)), sorted(set(new) - set(old))]
        for cell, pair in enumerate(zip(before, after, strict=True))
        for node, (old, new) in enumerate(zip(*pair, strict=True))
        if old != new
    ]


def _froze(before: Sequence, after: Sequence) -> list[list[int]]:
    return [
        [cell, node]
        for cell, pair in enumerate(zip(before, after, strict=True))
        for node, (old, new) in enumerate(zip(*pair, strict=True))
        if new and not old
    ]


def _sparse(z: Sequence[float]) -> list[float]:
    """Index and value of each entry that is not 0, one after the other."""
    values = ((index, _short(value, 4)) for index, value in enumerate(z) if value)
    return [part for pair in values if pair[1] for part in pair]


def _by_pick(support: Sequence[int], coefficients: Sequence[float]) -> list[float | None]:
    first = dict(reversed(list(zip(support, coefficients, strict=True))))  # 0 where it repeats
    return [_short(w, 4) for _, w in sorted(first.items())]


def _short(value: Any, digits: int) -> float | None:
    """The number to so many significant digits; None for NaN and infinities, for JSON."""
    number = float(value)  # also of "nan"
    if not math.isfinite(number):
        return None
    number = float(f"{number:.{digits}g}")
    return int(number) if number == int(number) else number


def _size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))
