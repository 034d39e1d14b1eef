"""The plot of `bench grow`: a column for each size that was changed, a row for each quantity."""

import os

import matplotlib
from matplotlib.figure import Figure

from istanas_jax.bench.costs.grow import QUANTITIES
from istanas_jax.look.curves import COLOURS, STYLE, save

LABELS = {"step_s_median": "step (s)", "compile_s": "compile (s)", "needed_mb": "memory (MB)"}


def plot(results: dict, path: str | os.PathLike) -> None:
    """Draw measurements with their exponents, on logarithmic axes."""
    names = list(results["exponents"])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(0.6 + 2.3 * len(names), 6.0), layout="constrained")
        grid = figure.subplots(len(QUANTITIES), len(names), squeeze=False, sharey="row")
        for row, key in enumerate(QUANTITIES):
            for column, name in enumerate(names):
                axes = grid[row, column]
                points = [
                    (r["value"], r[key])
                    for r in results["rows"]
                    if r["size"] == name and r.get(key)
                ]
                if points:
                    axes.plot(*zip(*points, strict=True), color=COLOURS[row], marker="o",
                              markersize=3, linewidth=1.2)  # fmt: skip
                axes.set_xscale("log", base=2)
                axes.set_yscale("log")
                axes.xaxis.set_major_formatter("{x:.0f}")
                axes.set_xticks([value for value, _ in points], minor=False)
                if fit := results["exponents"][name].get(key):
                    axes.set_title(f"power {fit['exponent']:.2f}", fontsize=8)
            grid[row, 0].set_ylabel(LABELS[key])
        for axes, name in zip(grid[-1], names, strict=True):
            axes.set_xlabel(name.replace("_", " "))
        save(figure, path)
