"""The plots of studies, as SVG."""

import os
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from istanas_jax.look.curves import COLOURS, STYLE, save
from istanas_jax.methods import title_of

Rows = Sequence[Mapping]


def _panels(count: int, width: float = 3.4, height: float = 3.0):
    figure = Figure(figsize=(0.4 + width * count, height), layout="constrained")
    return figure, figure.subplots(1, count, squeeze=False)[0]


def scatter(rows: Rows, path: str | os.PathLike) -> None:
    """Plot accuracy after training against that in search: a panel per method, a dot per seed."""
    if not rows:
        return
    with matplotlib.rc_context(STYLE):
        figure, panels = _panels(len(rows), 2.6)
        for number, (axes, row) in enumerate(zip(panels, rows, strict=True)):
            x, y = ([100 * pair[key] for pair in row["pairs"]] for key in ("search", "retrained"))
            axes.scatter(x, y, color=COLOURS[number % len(COLOURS)], s=22)
            tau = "" if row["tau"] is None else f"  τ = {row['tau']:+.2f}"
            axes.set_title(f"{title_of(row['method'])}{tau}", fontsize=8)
            axes.set_xlabel("in search (%)")
        panels[0].set_ylabel("trained from scratch (%)")
        save(figure, path)


def dots(rows: Rows, path: str | os.PathLike) -> None:
    """Plot the test error of every training against its parameters."""
    if not rows:
        return
    with matplotlib.rc_context(STYLE):
        figure, (axes,) = _panels(1, 5.0, 3.4)
        for number, row in enumerate(rows):
            pairs = [
                (run["parameters"] / 1e6, 100 * (1 - accuracy))
                for run in row["runs"]
                for accuracy in run["test_accuracies"]
            ]
            axes.scatter(
                *zip(*pairs, strict=True),
                color=COLOURS[number % len(COLOURS)],
                marker="os^DvPX*"[number // len(COLOURS) % 8],
                s=22,
                label=row.get("label") or title_of(row["method"]),
            )
        axes.set_xlabel("parameters (million)")
        axes.set_ylabel("test error (%)")
        axes.legend(fontsize=7, frameon=False)
        save(figure, path)


def strips(rows: Rows, path: str | os.PathLike) -> None:
    """Plot the judge's percentile of every found cell: a strip per method, a dot per seed."""
    if not rows:
        return
    with matplotlib.rc_context(STYLE):
        figure, (axes,) = _panels(1, 1.2 + 0.9 * len(rows), 3.2)
        for number, row in enumerate(rows):
            found = [run["percentile"] for run in row["runs"] if run["percentile"] is not None]
            # Side by side, so that equal percentiles are all seen.
            places = number + np.linspace(-0.18, 0.18, len(found)) if len(found) > 1 else [number]
            axes.scatter(places, found, color=COLOURS[number % len(COLOURS)], s=22, zorder=2)
            mean = row["percentile"]
            axes.plot([number - 0.3, number + 0.3], [mean, mean], color="black", linewidth=1.2)
        axes.axhline(50, color="black", linewidth=0.8, linestyle=":")
        axes.set_xticks(range(len(rows)), [title_of(row["method"]) for row in rows], fontsize=7)
        axes.set_ylim(-3, 103)
        axes.set_ylabel("percentile among random cells")
        save(figure, path)


def over_time(rows: Rows, path: str | os.PathLike) -> None:
    """Plot accuracy over time, a colour per method; then the distance of z, a line per node."""
    if not rows:
        return
    methods = list(dict.fromkeys(row["method"] for row in rows))
    moved = [row for row in rows if row["distance"]]
    moved = list({row["method"]: row for row in reversed(moved)}.values())  # the first seed's
    with matplotlib.rc_context(STYLE):
        figure, panels = _panels(1 + len(moved), 3.8)
        for row in rows:
            number = methods.index(row["method"])
            label = title_of(row["method"]) if row is _first(rows, row["method"]) else None
            accuracies = 100 * np.asarray(row["accuracy"])
            colour = COLOURS[number % len(COLOURS)]
            axes = panels[0]
            axes.plot(row["minutes"], accuracies, color=colour, label=label, linewidth=1.2,
                      marker="o", markersize=2.5)  # fmt: skip
        panels[0].set_xlabel("minutes, without compiling")
        panels[0].set_ylabel("accuracy in search (%)")
        panels[0].legend(fontsize=7, frameon=False)
        for axes, row in zip(panels[1:], moved, strict=True):
            _distances(axes, row, f"{title_of(row['method'])}, seed {row['seed']}")
        save(figure, path)


def _first(rows: Rows, method: str) -> Mapping:
    return next(row for row in rows if row["method"] == method)


def _distances(axes, row: Mapping, title: str) -> None:
    """Plot (epochs, cells, nodes): normal cells solid, reduction dashed, the mean in black."""
    distance = np.asarray(row["distance"], float)
    minutes = row["distance_minutes"]
    for cell, style in enumerate(("-", "--")):
        for node in range(distance.shape[2]):
            axes.plot(minutes, distance[:, cell, node], style, linewidth=1, marker=".",
                      color=COLOURS[node % len(COLOURS)],
                      label=f"node {node}" if cell == 0 else None)  # fmt: skip
    axes.plot(minutes, distance.mean((1, 2)), color="black", linewidth=1.6, label="mean")
    axes.set_yscale("symlog", linthresh=1e-4)
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("minutes, without compiling")
    axes.set_ylabel("distance of z in an epoch")
    axes.legend(fontsize=7, frameon=False)


def against_batch(rows: Rows, memory_mb: float | None, path: str | os.PathLike) -> None:
    """Plot seconds per image and memory of a step over the batch size, a line per method."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    if not methods:
        return
    with matplotlib.rc_context(STYLE):
        figure, (time, memory) = _panels(2)
        for number, method in enumerate(methods):
            own = sorted((r for r in rows if r["method"] == method), key=lambda row: row["batch"])
            look = {"color": COLOURS[number % len(COLOURS)], "linewidth": 1.2, "markersize": 3}
            timed = [row for row in own if row.get("step_s_median")]
            time.plot(
                [row["batch"] for row in timed],
                [1000 * row["step_s_median"] / row["batch"] for row in timed],
                marker="o", label=title_of(method), **look,
            )  # fmt: skip
            for key, style in (("needed_mb", "--"), ("measured_mb", "-")):
                known = [row for row in own if row.get(key)]
                memory.plot(
                    [row["batch"] for row in known], [row[key] / 1024 for row in known],
                    style, marker="o", **look,
                )  # fmt: skip
        if memory_mb:
            memory.axhline(memory_mb / 1024, color="black", linewidth=0.8)
            memory.text(0.99, memory_mb / 1024, "free", fontsize=7, ha="right", va="bottom",
                        transform=memory.get_yaxis_transform())  # fmt: skip
        for axes, label in ((time, "ms of an image"), (memory, "memory (GiB): compiler's dashed")):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.xaxis.set_major_formatter("{x:.0f}")
            axes.set_xticks(sorted({row["batch"] for row in rows}))
            axes.set_xlabel("batch")
            axes.set_ylabel(label)
        time.legend(fontsize=7, frameon=False)
        save(figure, path)
