"""The numbers behind the charts of a run's page, from the rows of its metrics.jsonl."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from istanas_jax.look import colours
from istanas_jax.look.quantities import QUANTITIES
from istanas_jax.look.report.facts import Facts
from istanas_jax.runs.phases import name_in
from istanas_jax.space.spaces import Space

PURPOSES = ("compile", "data", "step", "recovery", "checkpoint", "evaluation", "log")


def operations(space: Space) -> list[dict[str, str]]:
    """Name and colour of each operation of a space, by number."""
    return [{"name": name, "colour": colours.colour_of(name)} for name in space.operations]


def charts(facts: Facts) -> list[dict]:
    """A chart per name of a phase and quantity, with a line per phase and key."""
    phases: dict[str, list[dict]] = {}
    for row in facts.rows:
        phases.setdefault(row["phase"], []).append(row)
    phases = {phase: _with_outside(rows) for phase, rows in phases.items()}
    found = []
    for part in dict.fromkeys(name_in(phase) for phase in phases):
        own = {phase: rows for phase, rows in phases.items() if name_in(phase) == part}
        for title, keys, unit, factor in QUANTITIES:
            lines = [
                {"phase": phase, "key": key, "name": name} | line
                for phase, rows in own.items()
                for key, name in keys.items()
                if (line := _line(rows, key, factor))
            ]
            if lines and not (title == "Nodes" and not any(any(line["y"]) for line in lines)):
                found.append({"part": part, "title": title, "unit": unit, "lines": lines})
    return found


def time(facts: Facts) -> list[dict]:
    """The seconds of each phase by purpose, the rest as `other`."""
    bars = []
    for phase, seconds in facts.seconds.items():
        parts = {purpose: seconds[purpose] for purpose in PURPOSES if seconds.get(purpose)}
        total = seconds.get("total", sum(parts.values()))
        other = total - sum(parts.values())
        if other > 0.005 * total:
            parts["other"] = round(other, 3)
        bars.append({"phase": phase, "total": total, "parts": parts})
    return bars


def _with_outside(rows: Sequence[Mapping[str, Any]]) -> list[dict]:
    """Add the share of each epoch's time that the host spent outside steps."""
    extended = []
    for before, row in pairwise([{}, *rows]):
        spent = _since(row.get("seconds") or {}, before.get("seconds") or {})
        working = spent.get("total", 0) - spent.get("compile", 0)
        share = {}
        if working > 0 and spent.get("step", 0) > 0:
            share["outside"] = 100 * max(0.0, 1 - spent["step"] / working)
        extended.append({**row, **share})
    return extended


def _since(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {key: value - before.get(key, 0) for key, value in now.items()}


def _line(rows: Sequence[Mapping[str, Any]], key: str, factor: float) -> dict | None:
    """x and y, and for lists the least and largest; None if there is nothing to show."""
    x, y, low, high = [], [], [], []
    for row in rows:
        values = [factor * value for value in numbers(row.get(key))]
        if values:
            x.append(row.get("epoch", row["step"]))
            y.append(_short(sum(values) / len(values)))
            low.append(_short(min(values)))
            high.append(_short(max(values)))
    if not x:
        return None
    return {"x": x, "y": y} | ({"low": low, "high": high} if low != high else {})


def numbers(value: Any) -> list[float]:
    """All finite numbers in a value or nested list; anything else, like "nan", is left out."""
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    try:
        number = float(value)
    except (TypeError, ValueError):
        return []
    return [number] if math.isfinite(number) else []


def _short(value: float) -> float:
    return float(f"{value:.5g}")
