"""The page of a run: one HTML file in its folder that opens from a disk and needs nothing else."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from etils import epath

from istanas_jax.judge import regression
from istanas_jax.look import drawing
from istanas_jax.look.ascii_cells import describe_cell
from istanas_jax.look.judgement import about_the_judge
from istanas_jax.look.report import series
from istanas_jax.look.report.facts import Facts, gather
from istanas_jax.look.report.folds import all_folds
from istanas_jax.look.report.html import Html, fold, join, legend, page, section, tag
from istanas_jax.look.report.replay import Drawings, replays
from istanas_jax.runs.folder import REPLAY, REPORT, SIZES, phase_epochs
from istanas_jax.runs.progress import format_seconds
from istanas_jax.space.connections import CELL_TYPES
from istanas_jax.space.genotype import in_order_of
from istanas_jax.space.spaces import DARTS
from istanas_jax.storage.files import as_path, write_whole

SCHEDULES = {
    "two_stage": "Two-stage search",
    "one_stage": "One-stage search",
    "retrain": "Training",
}
STATES = {
    "finished": "finished",
    "searched": "search finished, not trained yet",
    "running": "running",
    "stopped": "not finished",
}


def write(workdir: str | os.PathLike, out: str | os.PathLike | None = None) -> epath.Path:
    """Write the page of the run in this folder and return its path."""
    path = as_path(out) if out is not None else epath.Path(workdir) / REPORT
    write_whole(path, run_page(gather(workdir)).encode())
    return path


def run_page(facts: Facts) -> str:
    drawings = Drawings(facts.space)
    found, trouble = [], ""
    try:
        found = replays(facts.searches, drawings)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        trouble = f"The rows of the replay are not as expected: {error}."
    body = join(
        [
            _hero(facts),
            *(tag("p", remark, class_="remark") for remark in [*facts.remarks, trouble] if remark),
            cells_section(facts),
            _replay_section(facts, found, drawings),
            _curves_section(facts),
            _time_section(facts),
            tag("div", *all_folds(facts), class_="folds"),
        ]
    )
    data = {
        "page": "run",
        "replays": found,
        "operations": series.operations(facts.space),
        "charts": series.charts(facts),
        "time": series.time(facts),
        "judge": about_the_judge(),
        "widths": [drawing.THIN, drawing.THICK],
    }
    return page(f"{facts.name} · istanas", body, data)


def _hero(facts: Facts) -> Html:
    state = tag("span", STATES[facts.state], class_=f"state {facts.state}")
    when = tag("span", shown_time(facts.when), class_="when")
    return tag(
        "section",
        tag("p", state, when, class_="states"),
        tag("h1", facts.name),
        tag("p", in_a_sentence(facts), class_="lead"),
        tag(
            "dl",
            *(
                tag("div", tag("dt", name), tag("dd", value, tag("small", note) if note else ""))
                for name, value, note in headline(facts)
            ),
            class_="figures",
        ),
        class_="hero",
    )


def headline(facts: Facts) -> list[tuple[str, str, str]]:
    """The numbers at the top of the page: name, value, and a note."""
    entries = []
    result = facts.result
    if result:
        deviation, seeds = result["test_accuracy_deviation"], len(result["seeds"])
        spread = f"± {100 * deviation:.2f} over {seeds} seeds" if deviation is not None else ""
        top5 = f"top 5: {100 * result['test_top5_accuracy']:.2f} %" if many_classes(facts) else ""
        accuracy = f"{100 * result['test_accuracy']:.2f} %"
        entries.append(("test accuracy", accuracy, spread or top5))
    elif facts.rows:
        row = facts.rows[-1]
        of = phase_epochs(facts.config, row["phase"])
        epochs = f"{row.get('epoch', '?')} of {of or '?'}"
        entries.append((f"epochs of {row['phase']}", epochs, ""))
        key = "heldout_accuracy" if "heldout_accuracy" in row else "accuracy"
        for accuracy in series.numbers(row.get(key))[:1]:
            what = "held-out accuracy" if key != "accuracy" else "training accuracy"
            entries.append((what, f"{100 * accuracy:.2f} %", "so far"))
    parameters = result["parameters"] if result else facts.sizes and facts.sizes["parameters"]
    if parameters:
        entries.append(("parameters", in_short(parameters), f"{parameters:,}"))
    if facts.sizes:
        adds = facts.sizes["multiply_adds"]
        entries.append(("multiply-adds", in_short(adds), f"{adds:,} an image"))
        if found := facts.sizes.get("latency"):
            batch = int(found["batch"])
            note = f"for {batch} image{'s' * (batch != 1)}; {found['predicted_ms']:.3g} predicted"
            entries.append(("latency", f"{found['measured_ms']:.3g} ms", note))
    elif facts.genotype is not None:
        entries.append(("multiply-adds", "unknown", f"there is no {SIZES} of these cells"))
    if facts.total_seconds is not None:
        compiling = sum(seconds.get("compile", 0) for seconds in facts.seconds.values())
        note = f"{format_seconds(compiling)} of it compiling"
        entries.append(("time", format_seconds(facts.total_seconds), note))
    return entries


def many_classes(facts: Facts) -> bool:
    return bool(facts.result and facts.result.get("test_top5_accuracy")) and (
        facts.config.get("data", {}).get("classes", 0) > 5
    )


def in_a_sentence(facts: Facts) -> str:
    """Say what was searched, on which images, for how long."""
    config, data = facts.config, facts.config.get("data") or {}
    text = f"{SCHEDULES.get(facts.schedule, facts.schedule)} on {data.get('name') or 'images'}"
    if data.get("image_size"):
        text += f", {data['image_size']} × {data['image_size']} pixels"
    if data.get("classes"):
        text += f", {data['classes']} classes"
    parts = []
    if (search := config.get("search")) and facts.schedule != "retrain":
        runs = search.get("runs", 1)
        limit = "up to " if facts.schedule == "one_stage" else ""
        searches = f"{runs} searches" if runs > 1 else "a search"
        where = "" if facts.space.name == DARTS.name else f" in the space {facts.space.name}"
        parts.append(f"{searches} of {limit}{search.get('epochs')} epochs{where}")
    if training := config.get("train"):
        seeds = f" from {training['runs']} seeds" if training.get("runs", 1) > 1 else ""
        parts.append(
            f"{training.get('epochs')} epochs of training{seeds} with {training.get('cells')} "
            f"cells and {training.get('channels')} channels"
        )
    return f"{text}: {', then '.join(parts)}." if parts else f"{text}."


def cells_section(facts: Facts) -> Html:
    if facts.genotype is None:
        return section("The cells", id="cells", lead="No architecture has been recovered yet.")
    lead = "What each node computes from two of the outputs before it."
    if facts.coefficients is not None:
        lead += " A line is as wide as its coefficient is large, dashed if it is negative."
    if facts.state in ("running", "stopped") and facts.result is None:
        lead += " As far as the run has come."
    return section(
        "The cells", legend(facts.space.operations), *cell_figures(facts), id="cells", lead=lead
    )


def cell_figures(facts: Facts, prefix: str = "") -> list[Html]:
    """Both cells; `prefix` keeps ids apart on a page of several runs."""
    pair = (None, None)
    if facts.coefficients:
        pair = in_order_of(facts.genotype, facts.coefficients)
    figures = []
    for cell_type, rows in zip(CELL_TYPES, pair, strict=True):
        svg = drawing.cell_svg(facts.genotype, cell_type, coefficients=rows, inline=True)
        cell = facts.genotype.normal if cell_type == "normal" else facts.genotype.reduce
        caption = tag("figcaption", tag("h3", f"{cell_type.capitalize()} cell"))
        words = fold(
            "in words", tag("pre", "\n".join(describe_cell(cell))), id=f"{prefix}{cell_type}-words"
        )
        figures.append(tag("figure", caption, tag("div", Html(svg), class_="cell"), words))
    return figures


def _replay_section(facts: Facts, found: list[dict], drawings: Drawings) -> Html:
    if not found:
        if facts.schedule == "retrain":
            return Html("")
        return section(
            "Replay",
            id="replay",
            lead=f"There is no replay: this run has no {REPLAY} with recoveries in it.",
        )
    shown = sum(len(replay["frames"]) for replay in found)
    every = sum(replay["recoveries"] for replay in found)
    lead = (
        "The search, recovery by recovery. Bars are z of a node's candidate connections, in the "
        f"colours of their operations: the {found[0]['s']} largest, which reach the dashed lines, "
        "are kept. A node with a blue outline is frozen."
    )
    if facts.schedule != "retrain":
        lead += f" {_about_percentiles(found)}"
    if shown < every:
        lead += f" Shown are the {shown:,} most telling of {every:,} rows."
    templates = [
        tag("template", Html(text), id=f"drawing-{number}")
        for number, text in enumerate(drawings.texts)
    ]
    player = tag("div", id="player")
    return section(
        "Replay", legend(facts.space.operations), player, *templates, id="replay", lead=lead
    )


def _about_percentiles(found: list[dict]) -> str:
    if any(frame["percentile"] is not None for replay in found for frame in replay["frames"]):
        return f"The curve below the nodes is the judge's percentile. {about_the_judge()}"
    sizes = {(replay["nodes"], replay["s"]) for replay in found}
    if sizes == {(regression.NODES, regression.S)}:
        return ""  # rows of earlier versions
    known = f"{regression.NODES} nodes with {regression.S} connections each"
    return f"There is no percentile by the judge, which knows only cells of {known}."


def _curves_section(facts: Facts) -> Html:
    if not facts.rows:
        return section("Curves", id="curves", lead="No epoch has come to its end yet.")
    return section("Curves", tag("div", id="charts"), id="curves")


def _time_section(facts: Facts) -> Html:
    if not facts.seconds:
        return Html("")
    lead = "Where the time went, on the host: a step that it waits for counts as step."
    return section("Time", tag("div", id="time-bars"), id="time", lead=lead)


def in_short(number: int) -> str:
    """The number with three digits: 3.32 M."""
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= unit:
            return (
                f"{number / unit:.3g}{name}"
                if number < 999.5 * unit
                else f"{number / unit:.0f}{name}"
            )
    return str(number)


def shown_time(when: float | None) -> str:
    return "" if when is None else f"{datetime.fromtimestamp(when, UTC):%Y-%m-%d %H:%M} UTC"
