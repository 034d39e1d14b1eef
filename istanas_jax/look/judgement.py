"""The judge's opinion of genotypes and of runs: what `python -m istanas_jax judge` prints."""

from __future__ import annotations

import os
import textwrap
from typing import Any

from etils import epath

from istanas_jax.judge import regression
from istanas_jax.runs import metrics
from istanas_jax.runs.folder import GENOTYPE, REPLAY, Workdir
from istanas_jax.space.genotype import Genotype, load
from istanas_jax.training.replay_row import ReplayRow, genotype_of


def judge_all(specs: list[str]) -> list[dict[str, Any]]:
    """A row per genotype, and per search of a run's folder."""
    return [row for spec in specs for row in _judge(spec)]


def _judge(spec: str) -> list[dict[str, Any]]:
    path = epath.Path(spec)
    if not path.is_dir():
        return [{"name": spec, **_verdict(load(spec))}]
    found = Workdir(path).read(GENOTYPE)
    searches = _searches(path)
    if found is None and not searches:
        raise ValueError(f"{spec} holds no {GENOTYPE} and no {REPLAY}: not a run")
    rows = [] if found is None else [{"name": spec, **_verdict(Genotype.from_dict(found))}]
    for phase, verdicts in searches.items():
        last = verdicts[-1]._asdict()
        over = [round(verdict.percentile, 1) for verdict in verdicts]
        rows.append({"name": f"{spec}, {phase}", **last, "percentiles": over})
    return rows


def _verdict(genotype: Genotype) -> dict[str, Any]:
    return regression.judge(genotype)._asdict()


def _searches(path: epath.Path) -> dict[str, list[regression.Verdict]]:
    """Verdicts over the recoveries of each search, if it is one the judge knows."""
    file = path / REPLAY
    searches: dict[str, list[regression.Verdict]] = {}
    for row in metrics.read(file) if file.exists() else ():
        genotype = _cells_of(row, file)
        if regression.why_not(genotype) is None:
            searches.setdefault(row["phase"], []).append(regression.judge(genotype))
    return searches


def _cells_of(row: ReplayRow, file: epath.Path) -> Genotype:
    try:
        return genotype_of(row)
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{file} is damaged: the row of step {row['step']} has no supports of two cells"
        ) from None


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as text for people."""
    width = max(len(row["name"]) for row in rows)
    lines = [f"{'':{width}}  accuracy  percentile  without weights: normal  reduction"]
    for row in rows:
        normal, reduction = row["weight_free"]
        lines.append(
            f"{row['name']:{width}}  {row['accuracy']:6.2f} %  {row['percentile']:8.1f} %"
            f"{normal:>20} of 8{reduction:>6} of 8"
        )
        if over := row.get("percentiles"):
            lines.append(
                f"{'':{width}}  percentile {over[0]} at the start, {max(over)} at best, "
                f"{over[-1]} at the end, over {len(over)} recorded recoveries"
            )
        if row["warning"]:
            lines.append(f"{'':{width}}  warning: {row['warning']}")
    return "\n".join([*lines, "", *_in_lines(about_the_judge())])


def about_the_judge() -> str:
    """Say what the predictions mean, and what they do not."""
    model = regression.coefficients()
    held_out = model["held_out"]
    return (
        "Predicted CIFAR-10 validation accuracy, and the share of random cells predicted to do "
        f"worse. The judge is a regression on {model['cells']:,} cells that others trained "
        "(NAS-Bench-301: 8 cells, 32 channels, 100 epochs). On cells it has not seen: Spearman "
        f"{held_out['spearman']:.2f}, mean error {held_out['mean_absolute_error']:.2f} points. It "
        "cannot judge collapsed cells, nor other data than CIFAR-10."
    )


def _in_lines(text: str) -> list[str]:
    return textwrap.wrap(text, 100)


def default_file() -> str:
    """Where the package keeps the coefficients."""
    return os.path.join(os.path.dirname(regression.__file__), regression.FILE)
