"""What the phases of one run share, and what every run leaves in its folder."""

import gc
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TextIO

import jax
import numpy as np
from ml_collections import ConfigDict

from istanas_jax import curves, data, drawing, metrics
from istanas_jax.ascii_cells import describe_cells
from istanas_jax.config_check import check_config
from istanas_jax.data import Dataset
from istanas_jax.genotype import Genotype
from istanas_jax.interrupts import Stop
from istanas_jax.metrics import MetricsLog
from istanas_jax.parallel import Devices, from_leader, is_leader, on_all_hosts
from istanas_jax.progress import format_seconds
from istanas_jax.provenance import provenance
from istanas_jax.recipes import check_batches
from istanas_jax.report import run_page
from istanas_jax.workdir import DATA, Workdir


@dataclass
class Session:
    """An open run."""

    workdir: Workdir
    dataset: Dataset
    config: ConfigDict
    log: MetricsLog
    replay: MetricsLog
    devices: Devices
    stop: Stop
    screen: TextIO  # where progress is shown: nowhere on other hosts than the first
    say: Callable[[str], None]

    @contextmanager
    def saying(self, say: Callable[[str], None]) -> Iterator[None]:
        """While a progress bar is on the screen, lines go through it."""
        before, self.say = self.say, say
        try:
            yield
        finally:
            self.say = before


def prepare(config: ConfigDict, path: str | os.PathLike) -> tuple[Devices, Workdir, Dataset]:
    """Everything that a run needs, checked; nothing is written."""
    devices = Devices()
    check_config(config, len(devices))
    workdir = Workdir.open(path, config, writes=is_leader())
    dataset = data.load(config.data)
    check_batches(config, dataset)
    workdir.check_data(dataset.marks, config.data.name)
    return devices, workdir, dataset


@contextmanager
def open_session(config: ConfigDict, path: str | os.PathLike) -> Iterator[Session]:
    """The run in the folder `path`, new or to be continued."""
    devices, workdir, dataset = prepare(config, path)
    marks = dataset.marks
    if not on_all_hosts(marks == from_leader(marks)):  # and all have seen the folder as it was
        raise ValueError(f"the hosts have different images of {config.data.name}: make them equal")
    with (
        _programs(),
        workdir.work(config),
        MetricsLog(workdir.path, writes=is_leader()) as log,
        MetricsLog(workdir.path, metrics.REPLAY, writes=is_leader()) as replay,
        Stop() as stop,
        open(os.devnull, "w") as nowhere,
    ):
        screen, lines = (sys.stderr, sys.stdout) if is_leader() else (nowhere, nowhere)
        say = partial(print, file=lines, flush=True)  # also when it is a file
        workdir.write("started.json", provenance(devices))
        workdir.write(DATA, marks)
        yield Session(workdir, dataset, config, log, replay, devices, stop, screen, say)


@contextmanager
def _programs() -> Iterator[None]:
    """Give compiled programs back at the end.

    Those of a run take thousands of memory maps, of which Linux allows a process 65,530: with those
    of some thirty runs it could not compile another. jax keeps them for functions that are called
    again, as those of a run that is over are not; what the caller has compiled with `jax.jit` is
    compiled again when it is called.
    """
    try:
        yield
    finally:
        jax.clear_caches()
        gc.collect()


def each_once(session: Session, name: str, runs: int, run: Callable[[int], dict]) -> list[dict]:
    """`run` for each number; what was finished in an earlier session is read, not done again."""
    results = []
    for number in range(runs):
        results.append(once(session, f"{name}_{number}.json", partial(run, number)))
    return results


def once(session: Session, file: str, run: Callable[[], dict]) -> dict:
    """`run`, or what it gave in an earlier session, which is in the file."""
    figures = from_leader(session.workdir.read(file))
    if figures is None:
        figures = from_leader(run())
        session.workdir.write(file, figures)
    return figures


def add_seconds(results: list[dict]) -> dict[str, float]:
    """Seconds by kind over several runs of a phase."""
    kinds = {kind for figures in results for kind in figures["seconds"]}
    return {
        kind: round(sum(figures["seconds"].get(kind, 0) for figures in results), 2)
        for kind in sorted(kinds)
    }


def write_architecture(session: Session, genotype: Genotype, coefficients=None) -> None:
    """genotype.json and the two cells as pictures; coefficients come strongest first."""
    if not is_leader():
        return
    session.workdir.write("genotype.json", genotype.to_dict())
    if coefficients is not None:
        coefficients = np.flip(coefficients, -1)  # a genotype lists the weaker pick first
    drawing.write_cells(genotype, session.workdir / "cells", coefficients)


def write_result(session: Session, result: dict) -> dict:
    """result.json, which is returned, curves and report; the result in words."""
    if is_leader():
        curves.write_curves(metrics.read(session.log.path), session.workdir / "curves.svg")
        session.workdir.write("result.json", result)
        session.say(in_words(result, session.workdir))
    result = from_leader(result)
    write_report(session)  # last: nobody waits for it
    return result


def write_report(session: Session) -> None:
    """The page of the run; a run that cannot have one is not lost."""
    if not is_leader():
        return
    try:
        session.say(f"the report is {run_page.write(session.workdir.path)}")
    except Exception as error:  # of a page that is only looked at
        session.say(
            f"the report could not be written ({error}); once that is mended: "
            f"python -m istanas_jax report {session.workdir.path}"
        )


def accuracies(trainings: list[dict]) -> dict:
    """Mean and deviation over the seeds of a training."""
    values = [figures["test_accuracy"] for figures in trainings]
    return {
        "test_accuracy": statistics.fmean(values),
        "test_accuracy_deviation": statistics.stdev(values) if len(values) > 1 else None,
        "test_accuracies": values,
        "test_top5_accuracy": statistics.fmean(f["test_top5_accuracy"] for f in trainings),
        "seeds": [figures["seed"] for figures in trainings],
    }


def in_words(result: dict, workdir: Workdir) -> str:
    deviation = result["test_accuracy_deviation"]
    seeds = len(result["seeds"])
    spread = f" ± {100 * deviation:.2f} over {seeds} seeds" if deviation is not None else ""
    lines = [
        "",
        f"test accuracy {100 * result['test_accuracy']:.2f} %{spread} (top 5: "
        f"{100 * result['test_top5_accuracy']:.2f} %), {result['parameters']:,} parameters",
        describe_cells(Genotype.from_dict(result["genotype"])),
    ]
    spent = []
    for phase, seconds in result["seconds"].items():
        spent.append(
            f"{phase} {format_seconds(seconds['total'])} "
            f"({format_seconds(seconds.get('compile', 0))} of it compiling)"
        )
    lines += [f"time: {', '.join(spent)}", f"everything is in {workdir.path}"]
    return "\n".join(lines)
