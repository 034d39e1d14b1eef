"""The curves of a run, from the rows of its metrics.jsonl, as one SVG figure.

There is a column of panels for each name of a phase ("search", "retrain"), a row for each quantity,
and a colour for each phase of that name ("search 0", "search 1", ...).
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from istanas_jax.look.quantities import BY_TITLE, Quantity
from istanas_jax.runs.phases import name_in
from istanas_jax.storage.files import write_whole

# What the figure shows, a row of panels each, and the styles of its lines by their names.
SHOWN = [BY_TITLE[title] for title in ("Loss", "Accuracy", "Learning rate", "Distance of z")]
STYLES = {"held-out": "--", "images of b": None}  # otherwise solid; None: not shown
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito
# Salted ids and no date: the same rows give the same bytes.
STYLE = {"svg.hashsalt": "istanas", "svg.fonttype": "none", "font.size": 9, "axes.grid": True,
         "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False}  # fmt: skip

Rows = Sequence[Mapping[str, Any]]


def write_curves(rows: Rows, path: str | os.PathLike) -> None:
    """Draw what the rows hold: loss, accuracy, learning rate, distance of z at each recovery.

    Solid lines show training images, dashed ones held-out images; the first panel has a legend
    of phases. A distance is the mean over nodes, in a band from the least to the largest. If
    there is nothing to draw, no file is written.
    """
    columns: dict[str, dict[str, list]] = {}  # "search" -> "search 0" -> its rows
    for row in rows:
        column = columns.setdefault(name_in(row["phase"]), {})
        column.setdefault(row["phase"], []).append(row)
    columns = {name: found for name, found in columns.items() if any(map(_panels, found.values()))}
    panels = _panels(rows)
    if not panels:
        return
    with matplotlib.rc_context(STYLE):
        size = (1 + 3.6 * len(columns), 0.6 + 1.9 * len(panels))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(panels), len(columns), squeeze=False)
        for column, (name, phases) in enumerate(columns.items()):
            axis = _axis(phases)
            shown = [panel for panel in panels if any(panel in _panels(p) for p in phases.values())]
            for axes, panel in zip(grid[:, column], panels, strict=True):
                if panel in shown:
                    _draw(axes, panel, phases, axis, panel == shown[0] and len(phases) > 1)
                else:
                    axes.axis("off")
            grid[panels.index(shown[0]), column].set_title(name)
            grid[panels.index(shown[-1]), column].set_xlabel(axis)
        save(figure, path)


def save(figure: Figure, path: str | os.PathLike) -> None:
    """Write the figure as an SVG file that depends on nothing but its content."""
    content = io.BytesIO()
    figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    write_whole(path, content.getvalue())


def _draw(axes, panel: Quantity, phases: Mapping[str, Rows], axis: str, named: bool) -> None:
    styles = _styles(panel)
    for number, rows in enumerate(phases.values()):
        colour = COLOURS[number % len(COLOURS)]
        for key, style in styles.items():
            series = [row for row in rows if _has(row, key)]
            if not series:
                continue
            x = [row[axis] for row in series]
            values = [panel.factor * np.ravel(row[key]).astype(float) for row in series]
            marker = "o" if len(x) == 1 else None
            means = list(map(np.mean, values))
            axes.plot(x, means, style, color=colour, linewidth=1.2, marker=marker)
            if max(map(len, values)) > 1:
                low, high = list(map(np.min, values)), list(map(np.max, values))
                axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_ylabel(panel.title.lower() + (f" ({panel.unit})" if panel.unit else ""))
    axes.xaxis.get_major_locator().set_params(integer=True)
    for number, phase in enumerate(phases if named else ()):
        axes.plot([], [], color=COLOURS[number % len(COLOURS)], label=phase)
    for key, style in styles.items():
        if len(styles) > 1 and any(_has(row, key) for rows in phases.values() for row in rows):
            axes.plot([], [], style, color="#555555", linewidth=1.2, label=panel.lines[key])
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=7, frameon=False)


def _panels(rows: Rows) -> list[Quantity]:
    """The quantities that occur in the rows."""
    return [panel for panel in SHOWN if any(_has(r, k) for r in rows for k in _styles(panel))]


def _styles(panel: Quantity) -> dict[str, str]:
    """The style of each line that is shown, by its key in a row."""
    styles = {key: STYLES.get(name, "-") for key, name in panel.lines.items()}
    return {key: style for key, style in styles.items() if style}


def _has(row: Mapping[str, Any], key: str) -> bool:
    return row.get(key) is not None and np.size(row[key]) > 0


def _axis(phases: Mapping[str, Rows]) -> str:
    """ "epoch" if it tells the rows of every curve apart, else "step"."""
    for rows in phases.values():
        for key in (key for panel in SHOWN for key in _styles(panel)):
            epochs = [row.get("epoch") for row in rows if _has(row, key)]
            if None in epochs or any(a >= b for a, b in pairwise(epochs)):
                return "step"
    return "epoch"
