"""A page over a folder of runs: a table to sort, and a link to the page of each."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import quote

from etils import epath

from istanas_jax.look.report import run_page
from istanas_jax.look.report.compare import shown_accuracy, shown_parameters, shown_seconds
from istanas_jax.look.report.facts import Facts, gather, is_run, last_sign
from istanas_jax.look.report.html import Html, join, page, table, tag
from istanas_jax.runs.folder import REPORT
from istanas_jax.storage.files import as_path, in_bucket, write_whole

NAME = "index.html"


def write(folder: str | os.PathLike, out: str | os.PathLike | None = None) -> epath.Path:
    """Write the index, and the pages of runs whose own is missing or old; return its path."""
    runs = find_runs(folder)
    if not runs:
        raise ValueError(f"{folder} holds no run, nor folders of runs")
    path = as_path(out) if out is not None else epath.Path(folder) / NAME
    for run in runs:
        if is_old(run):
            with suppress(ValueError):  # the index says what is wrong with it
                run_page.write(run)
    links = [(run, _address(_link(run, path))) for run in runs]
    write_whole(path, index_page(epath.Path(folder).name, links).encode())
    return path


def index_page(name: str, runs: Iterable[tuple[epath.Path, str]]) -> str:
    """The page of these runs, each with the address of its own page."""
    lines, remarks = [], []
    for run, address in runs:
        try:
            lines.append(_line(gather(run), address))
        except ValueError as error:  # the other runs are shown all the same
            remarks.append(tag("p", f"{run.name}: {error}.", class_="remark"))
    return _page(name, lines, remarks)


def find_runs(folder: str | os.PathLike) -> list[epath.Path]:
    """The runs right in this folder, by name."""
    folder = epath.Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    return sorted(path for path in folder.iterdir() if path.is_dir() and is_run(path))


def is_old(run: epath.Path) -> bool:
    """Whether the run's page is missing, or the run has gone on since it was written."""
    path = run / REPORT
    return not path.exists() or path.stat().mtime < (last_sign(run) or 0)


def _link(run: epath.Path, index: epath.Path) -> str:
    if in_bucket(index):
        return f"{run.name}/{REPORT}"
    here = os.path.dirname(os.path.abspath(index))
    return os.path.relpath(os.path.join(os.path.abspath(run), REPORT), here)


def _line(run: Facts, address: str) -> list:
    return [
        tag("a", run.name, href=address),
        run_page.SCHEDULES.get(run.schedule, run.schedule),
        (tag("span", run_page.STATES[run.state], class_=f"state {run.state}"), run.state),
        shown_accuracy(run),
        shown_parameters(run),
        shown_seconds(run),
        (run_page.shown_time(run.when), run.when or ""),
    ]


def _address(path: str) -> str:
    """A path as a relative address: what is special in addresses is quoted."""
    return "./" + quote(path)


def _page(name: str, lines: list[list], remarks: list[Html]) -> str:
    head = ["run", "schedule", "state", "test accuracy", "parameters", "time", "last sign of life"]
    count = f"{len(lines)} run{'s' * (len(lines) != 1)}"
    lead = f"{count}. A click on a heading sorts; `report A B` compares runs on one page."
    body = join(
        [
            tag("section", tag("h1", name or "runs"), tag("p", lead, class_="lead"), class_="hero"),
            *remarks,
            table(head, lines, class_="sortable"),
        ]
    )
    return page(f"{name or 'runs'} · istanas", body, {"page": "index"})
