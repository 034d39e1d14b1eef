"""How the cost of a search step grows with the batch, channels, cells, classes and image size.

One size at a time is changed, by factors of the config's own. Time of a step, time to compile it
and its memory are measured, each in a process of its own, and a power law is fitted to each: with
an exponent of 1 twice the batch takes twice as long. A line that bends, because exponents between
neighbours differ, is marked.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from ml_collections import ConfigDict

from istanas_jax.bench.costs.apart import measure_apart
from istanas_jax.runs.progress import format_seconds

# What is changed, with its part and key of a config; and what is measured.
SIZES = {
    "batch": ("search", "batch"),
    "channels": ("search", "channels"),
    "cells": ("search", "cells"),
    "classes": ("data", "classes"),
    "image_size": ("data", "image_size"),
}
QUANTITIES = {"step_s_median": "step", "compile_s": "compile", "needed_mb": "memory"}
FACTORS = (0.5, 1.0, 2.0, 4.0)
BEND = 0.3  # exponents between neighbours that differ by more are a bend


def run(
    config: ConfigDict,
    *,
    only: Sequence[str] = (),
    factors: Sequence[float] = FACTORS,
    steps: int = 5,
    say: Callable[[str], None] = lambda line: None,
) -> dict:
    """Measure all sizes, or only the named ones, at these multiples of the config's values.

    A multiple of 1, the config itself, is measured once for all sizes.
    """
    if "search" not in config:
        raise ValueError("this config has no search, so it has no search step to measure")
    if unknown := [name for name in only if name not in SIZES]:
        raise ValueError(f"there is no size {unknown[0]!r}, there are: {', '.join(SIZES)}")
    asked = [(name, value) for name in only or SIZES for value in _values(config, name, factors)]
    measured: dict[str, dict] = {}
    begin, rows = time.monotonic(), []
    for done, (name, value) in enumerate(asked):
        changed = _with(config, name, value)
        key = changed.to_json_best_effort()
        if key not in measured:
            say(f"{done + 1} of {len(asked)}: {name} {value}{_to_come(begin, done, len(asked))}")
            measured[key] = measure_apart(changed, steps)
        rows.append({"size": name, "value": value} | measured[key])
    return {
        "benchmark": "grow",
        "method": config.search.method,
        "steps": steps,
        "cores": os.cpu_count(),
        "base": {name: _own(config, name) for name in SIZES},
        "rows": rows,
        "exponents": {name: _fits(rows, name) for name in only or SIZES},
    }


def _to_come(begin: float, done: int, total: int) -> str:
    if not done:
        return ""
    spent = time.monotonic() - begin
    left = spent / done * (total - done)
    return f"; {format_seconds(spent)} so far, about {format_seconds(left)} to come"


def _values(config: ConfigDict, name: str, factors: Sequence[float]) -> list[int]:
    """The sizes to measure; channels stay even, and everything is at least 1."""
    own = _own(config, name)
    unit = 2 if name == "channels" else 1
    return sorted({max(unit, unit * round(own * factor / unit)) for factor in factors})


def _own(config: ConfigDict, name: str) -> int:
    part, key = SIZES[name]
    return config[part][key]


def _with(config: ConfigDict, name: str, value: int) -> ConfigDict:
    changed, (part, key) = config.copy_and_resolve_references(), SIZES[name]
    changed[part][key] = value
    return changed


def _fits(rows: list[dict], name: str) -> dict:
    """Per quantity the exponent over all values of a size, and whether the line bends."""
    found = {}
    for key in QUANTITIES:
        points = [
            (math.log(row["value"]), math.log(row[key]))
            for row in rows
            if row["size"] == name and row.get(key)
        ]
        if len(points) < 2:
            continue
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(points)]
        found[key] = {
            "exponent": round(float(np.polyfit(*zip(*points, strict=True), 1)[0]), 3),
            "between": [round(slope, 3) for slope in slopes],
            "bends": max(slopes) - min(slopes) > BEND,
        }
    return found


def table(results: dict) -> str:
    """Format the results as text for people."""
    base = ", ".join(f"{name} {value}" for name, value in results["base"].items())
    lines = [f"one search step by {results['method']} on {results['cores']} cores, around {base}"]
    for name, fits in results["exponents"].items():
        lines += ["", f"{name:<12}{'step':>12}{'compile':>12}{'memory':>12}"]
        for row in results["rows"]:
            if row["size"] == name:
                lines.append(f"{row['value']:<12}" + "".join(_cell(row, key) for key in QUANTITIES))
        said = (f"{_exponent(fits.get(key)):>12}" for key in QUANTITIES)
        lines.append(f"{'grows with':<12}{''.join(said)}")
    lines += ["", f"^1.2 is a power of 1.2; * bends: powers between neighbours differ by {BEND}"]
    return "\n".join(lines)


def _cell(row: dict, key: str) -> str:
    if key not in row:
        return f"{'no memory' if 'out_of_memory' in row else '-':>12}"
    return f"{row[key]:>9.0f} MB" if key == "needed_mb" else f"{row[key]:>10.3f} s"


def _exponent(fit: dict | None) -> str:
    return "-" if fit is None else f"^{fit['exponent']:.2f}{'*' if fit['bends'] else ''}"
