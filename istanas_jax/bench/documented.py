"""Measures documented figures again, each by its command, and compares.

`documented.json` is a list of

    {"command": what follows `python -m istanas_jax`, with {folder} for a new folder,
     "minutes": what it takes on two cores, "line": a text that only this line has,
     "within": the relative difference that is allowed, for times; none: figures are exact,
     "figures": [[path in the result, format, the figure as documented, factor], ...]}

A command's result is the JSON that it prints or, without any, result.json or study.json in its
folder.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from istanas_jax.runs.folder import RESULT

LIST = Path(__file__).with_name("documented.json")


class Figure(NamedTuple):
    """A documented figure."""

    path: str  # in the command's result: keys and indices, separated by /
    format: str
    text: str  # as documented
    scale: float = 1  # converts the result's unit to the documented one


class Entry(NamedTuple):
    """A command, and the figures that it gives."""

    command: str
    minutes: float
    line: str
    figures: tuple[Figure, ...]
    within: float | None = None


def entries() -> list[Entry]:
    """The whole list."""
    return [
        Entry(**item | {"figures": tuple(Figure(*figure) for figure in item["figures"])})
        for item in json.loads(LIST.read_text())
    ]


def run(*, minutes: float, only: str = "", say: Callable[[str], None] = print) -> dict:
    """Run every command again that takes at most `minutes` and contains `only`."""
    chosen = [e for e in entries() if e.minutes <= minutes and only in e.command]
    if not chosen:
        raise ValueError(f"no documented command of up to {minutes:g} minutes has {only!r} in it")
    rows, results = [], {}
    for entry in chosen:
        try:
            if entry.command not in results:
                say(f"python -m istanas_jax {entry.command}  (about {entry.minutes:g} min)")
                results[entry.command] = measure(entry.command)
            rows += compare(entry, results[entry.command])
        except ValueError as error:
            rows.append({"command": entry.command, "failed": str(error), "agrees": False})
    return {"benchmark": "docs", "rows": rows, "agrees": all(row["agrees"] for row in rows)}


def measure(command: str) -> Any:
    """Run the command in its own process and folder, and return its result."""
    with tempfile.TemporaryDirectory() as folder:
        given = [part.format(folder=f"{folder}/run") for part in command.split()]
        program = [sys.executable, "-m", "istanas_jax", *given]
        done = subprocess.run(program, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise ValueError(f"exit code {done.returncode}: {last}")
        for name in (RESULT, "study.json"):
            if (file := Path(folder, "run", name)).exists():
                return json.loads(file.read_text())
        return json.loads(done.stdout.splitlines()[-1])


def compare(entry: Entry, result: Any) -> Iterator[dict]:
    """Yield a row per figure: documented, measured, and whether they agree."""
    for figure in entry.figures:
        value = result
        for key in figure.path.split("/"):
            value = value[int(key)] if isinstance(value, list) else value[key]
        measured = figure.format.format(figure.scale * value).replace("%", " %")
        agrees = measured == figure.text
        if entry.within is not None:
            ratio = _number(measured) / _number(figure.text)
            agrees = 1 / (1 + entry.within) <= ratio <= 1 + entry.within
        yield {
            "command": entry.command,
            "figure": figure.path,
            "documented": figure.text,
            "measured": measured,
            "agrees": agrees,
        }


def _number(text: str) -> float:
    return float(re.sub(r"[^-+.0-9e]", "", text))


def table(results: dict) -> str:
    """Format the rows as a table for the terminal."""
    lines = [f"{'figure':<28}{'documented':>16}{'measured':>16}"]
    command = None
    for row in results["rows"]:
        if row["command"] != command:
            command = row["command"]
            lines += ["", command]
        if "failed" in row:
            lines.append(f"  could not be measured: {row['failed']}")
        else:
            said = "" if row["agrees"] else "  differs"
            lines.append(f"  {row['figure']:<26}{row['documented']:>16}{row['measured']:>16}{said}")
    differ = sum(not row["agrees"] for row in results["rows"])
    lines += ["", f"{len(results['rows']) - differ} agree, {differ} do not"]
    return "\n".join(lines)
