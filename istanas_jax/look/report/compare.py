"""One page over several runs: results side by side, curves over each other, what was different."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from etils import epath

from istanas_jax.look.quantities import QUANTITIES
from istanas_jax.look.report import series
from istanas_jax.look.report.facts import Facts, gather
from istanas_jax.look.report.folds import show
from istanas_jax.look.report.html import COLOURS, Html, join, legend, page, section, table, tag
from istanas_jax.look.report.run_page import SCHEDULES, STATES, cell_figures, in_short
from istanas_jax.runs.folder import flat
from istanas_jax.runs.progress import format_seconds
from istanas_jax.storage.files import as_path, write_whole

NAME = "comparison.html"
UNKNOWN = ("unknown", "")  # shown, and sorted by


def write(workdirs: Sequence[str | os.PathLike], out: str | os.PathLike = NAME) -> epath.Path:
    """Write the page and return its path."""
    path = as_path(out)
    write_whole(path, comparison_page([gather(workdir) for workdir in workdirs]).encode())
    return path


def comparison_page(runs: Sequence[Facts]) -> str:
    names = different_names(runs)
    body = join(
        [
            tag(
                "section",
                tag("h1", f"{len(runs)} runs compared"),
                tag("p", ", ".join(names), class_="lead"),
                class_="hero",
            ),
            _results(runs, names),
            _cells(runs, names),
            section("Curves", tag("div", id="charts"), id="curves"),
            _configs(runs, names),
        ]
    )
    data = {"page": "comparison", "charts": _charts(runs, names)}
    return page(f"{', '.join(names)} · istanas", body, data)


def different_names(runs: Sequence[Facts]) -> list[str]:
    """The folders' names, with their parents where two are the same."""
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [run.path for run in runs]


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def named(number: int, name: str) -> Html:
    return join([tag("span", class_="run-dot", style=f"background:{colour(number)}"), name])


def shown_accuracy(run: Facts) -> tuple[str, Any]:
    if not run.result:
        return "", ""
    accuracy, deviation = run.result["test_accuracy"], run.result["test_accuracy_deviation"]
    spread = f" ± {100 * deviation:.2f}" if deviation is not None else ""
    return f"{100 * accuracy:.2f}{spread} %", accuracy


def shown_parameters(run: Facts) -> tuple[str, Any]:
    counted = run.sizes["parameters"] if run.sizes else None
    parameters = run.result["parameters"] if run.result else counted
    return (f"{parameters:,}", parameters) if parameters else UNKNOWN


def shown_seconds(run: Facts) -> tuple[str, Any]:
    spent = run.total_seconds
    return ("", "") if spent is None else (format_seconds(spent), spent)


def _results(runs: Sequence[Facts], names: Sequence[str]) -> Html:
    rows = []
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        adds = run.sizes["multiply_adds"] if run.sizes else None
        rows.append(
            [
                named(number, name),
                shown_accuracy(run),
                shown_parameters(run),
                (in_short(adds), adds) if adds else UNKNOWN,
                shown_seconds(run),
                SCHEDULES.get(run.schedule, run.schedule),
                STATES[run.state],
            ]
        )
    head = ["run", "test accuracy", "parameters", "multiply-adds", "time", "schedule", "state"]
    return section("Results", table(head, rows, class_="sortable"), id="results")


def _cells(runs: Sequence[Facts], names: Sequence[str]) -> Html:
    columns = []
    operations = dict.fromkeys(op for run in runs for op in run.space.operations)
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        if run.genotype is None:
            inside = [tag("p", "No architecture has been recovered yet.", class_="soft")]
        else:
            inside = cell_figures(run, prefix=f"run{number}-")
        columns.append(tag("div", tag("h3", named(number, name)), *inside))
    return section("The cells", legend(operations), tag("div", *columns, class_="side"), id="cells")


def _charts(runs: Sequence[Facts], names: Sequence[str]) -> list[dict]:
    """One chart for each quantity, with the lines of all runs."""
    together: dict[tuple[str, str], dict] = {}
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        for spec in series.charts(run):
            # A one-stage run's training is compared with the training of found cells.
            part = "retrain" if spec["part"] == "train" else spec["part"]
            chart = together.setdefault((part, spec["title"]), spec | {"part": part, "lines": []})
            chart["lines"] += [
                line | {"run": name, "colour": colour(number)} for line in spec["lines"]
            ]
    order = {quantity.title: place for place, quantity in enumerate(QUANTITIES)}
    return sorted(
        together.values(), key=lambda chart: (chart["part"] != "search", order[chart["title"]])
    )


def _configs(runs: Sequence[Facts], names: Sequence[str]) -> Html:
    configs = [flat(run.config) for run in runs]
    keys = dict.fromkeys(key for config in configs for key in config)
    rows = []
    for key in keys:
        values = [show(config[key]) if key in config else "not set" for config in configs]
        if len(set(values)) > 1:
            rows.append([key, *values])
    if not rows:
        return section("Configs", id="configs", lead="The configs are the same.")
    lead = f"The {len(rows)} of {len(keys)} keys that are not the same in all runs."
    return section(
        "Configs", table(["key", *names], rows, class_="config"), id="configs", lead=lead
    )
