"""What all studies share: they do jobs in turn, write tables after each, and go on after a kill.

A study is a folder. Its jobs are ordinary runs in folders below it, or measurements in files, so
what is finished is read and what was stopped goes on. `study.md`, `study.json` and the figure are
made from what is there, anew after every job.
"""

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from istanas_jax.runs.folder import FREE, LOCK, Workdir
from istanas_jax.runs.progress import format_seconds
from istanas_jax.runs.provenance import command_line, commit
from istanas_jax.storage.files import write_whole
from istanas_jax.studies.check import check_study
from istanas_jax.training.errors import TrainingError


class Job(NamedTuple):
    """A part of a study that is done once."""

    name: str  # its folder or file
    group: str  # jobs of one group take about as long
    done: Callable[[], bool]
    run: Callable[[], Any]


class StudyDir(Workdir):
    """A study's folder: not itself a run, and one to which methods and seeds may be added."""

    config_file = "study_config.json"
    free = (*FREE, "study.methods", "study.spaces", "study.seeds", "study.one_stage",
            "study.batches", "study.cells", "study.resamples", "study.trained.")  # fmt: skip

    def read(self, name: str) -> Any:
        """The object in a JSON file; a study's config may have its name under the earlier key."""
        value = super().read(name)
        if name == self.config_file and value and "kind" in value.get("study", {}):
            value["study"]["name"] = value["study"].pop("kind")
        return value

    def _has_begun(self) -> bool:
        """Whether any job has begun; folders of runs that did not begin are removed."""
        begun = False
        for path in self.path.iterdir():
            if path.is_dir():
                if {file.name for file in path.iterdir()} <= {LOCK}:
                    (path / LOCK).unlink(missing_ok=True)
                    path.rmdir()
                else:
                    begun = True
            elif not path.name.startswith((".", "study")):
                begun = True
        return begun


class Study(ABC):
    """A study in a folder; subclasses say what its jobs are and what comes of them."""

    title: str

    def __init__(self, config: ConfigDict, path: str | os.PathLike, *, writes: bool = True):
        self.config, self.settings = config, config.study
        check_study(self.settings)
        self.folder = StudyDir.open(path, config, writes=writes)
        self.failed: dict[str, str] = {}

    @abstractmethod
    def jobs(self) -> list[Job]:
        """The parts of the study, in the order in which they are done."""

    @abstractmethod
    def results(self) -> dict:
        """All that is known so far, ready for JSON; `rows` are those of the table."""

    @abstractmethod
    def markdown(self, results: dict) -> list[str]:
        """Write the paragraphs below the title."""

    @abstractmethod
    def plot(self, results: dict, path: str | os.PathLike) -> None:
        """Plot the results as the study's figure, if there are any."""

    def run(self) -> dict:
        """Do all jobs that are left; return what study.json holds."""
        with self.folder.work(self.config):
            jobs = self.jobs()
            clock = Clock(jobs, self.say)
            for job in jobs:
                if job.done():
                    clock.skip(job)
                    continue
                with clock.of(job):
                    self._do(job)
                self.write(jobs)
            results = self.write(jobs)
        self.say(f"\n{self.text(results)}\neverything is in {self.folder.path}")
        return results

    def _do(self, job: Job) -> None:
        """Do one job; if its run cannot go on, say so in the table and go on with the others."""
        try:
            job.run()
        except TrainingError as error:
            self.failed[job.name] = str(error)
            self.say(f"study: {job.name} failed: {error}")

    def write(self, jobs: Sequence[Job]) -> dict:
        """Write study.json, study.md and the figure from what there is now."""
        command, config, overrides = command_line(sys.argv)
        missing = [job.name for job in jobs if not job.done() and job.name not in self.failed]
        results = {
            "study": self.settings.name,
            "command": command,
            "config_file": config,
            "overrides": overrides,
            "seed": self.config.seed,
            "commit": commit(),
            "jobs": len(jobs),
            "missing": missing,
            "failed": self.failed,
            **self.results(),
            "config": self.config.to_dict(),
        }
        if self.folder.writes:
            self.folder.write("study.json", results)
            self.plot(results, self.folder / "study.svg")
            write_whole(self.folder / "study.md", f"{self.text(results)}\n".encode())
        return results

    def text(self, results: dict) -> str:
        """The content of study.md."""
        parts = [f"# {self.title}", *self.markdown(results)]
        if results["missing"]:
            done = results["jobs"] - len(results["missing"]) - len(results["failed"])
            parts.append(
                f"**Not finished**: {done} of {results['jobs']} parts are done; missing: "
                f"{', '.join(results['missing'])}."
            )
        parts += [f"**Failed**: {name}: {why}." for name, why in results["failed"].items()]
        if (self.folder / "study.svg").exists():
            parts.append("![](study.svg)")
        parts.append(in_short(results))
        return "\n\n".join(parts)

    def say(self, line: str) -> None:
        if self.folder.writes:
            print(line, flush=True)


def in_short(results: dict) -> str:
    """Say where the results come from."""
    chosen = " ".join([results["config_file"] or "a config of its own", *results["overrides"]])
    told = results["commit"]
    return f"Config {chosen}, seed {results['seed']}, commit {told or 'unknown'}; see study.json."


class Clock:
    """Tells which job of how many is next, the time so far, and the time still to come."""

    def __init__(self, jobs: Sequence[Job], say: Callable[[str], None]):
        self.left, self.total, self.say = list(jobs), len(jobs), say
        self.took: dict[str, list[float]] = {}
        self.begin = time.perf_counter()

    def skip(self, job: Job) -> None:
        self.left.remove(job)

    def of(self, job: Job) -> "Clock":
        number = self.total - len(self.left) + 1
        so_far = format_seconds(time.perf_counter() - self.begin)
        eta = self.to_come()
        later = f", about {format_seconds(eta)} to come" if eta is not None else ""
        self.say(f"study: {number} of {self.total}, {job.name}; {so_far} so far{later}")
        self.job, self.started = job, time.perf_counter()
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_) -> None:
        self.left.remove(self.job)
        seconds = time.perf_counter() - self.started
        self.took.setdefault(self.job.group, []).append(seconds)

    def to_come(self) -> float | None:
        """Seconds left: a job takes the mean of its group or, for a new group, the mean of all."""
        if not self.took:
            return None
        means = {group: sum(times) / len(times) for group, times in self.took.items()}
        mean = sum(means.values()) / len(means)
        return sum(means.get(job.group, mean) for job in self.left)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first hold numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def percent(mean: float | None, deviation: float | None = None) -> str:
    if mean is None:
        return "-"
    spread = f" ± {100 * deviation:.2f}" if deviation is not None else ""
    return f"{100 * mean:.2f}{spread}"
