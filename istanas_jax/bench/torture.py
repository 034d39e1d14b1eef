"""Runs that are killed, and checkpoints that are damaged: what is lost should be nothing.

Real runs on the embedded digits are killed by SIGKILL at random moments and started again by the
same command until they end; what they end with is compared, bit for bit, with a run that nobody
disturbed. `damage` does the same to the files of checkpoints.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from istanas_jax.bench import damage
from istanas_jax.bench.same import differences
from istanas_jax.runs.folder import CHECKPOINTS
from istanas_jax.runs.phases import Phase

ROOT = Path(__file__).parent.parent.parent
SCHEDULES = {"two_stage": "digits.py:tiny", "one_stage": "digits.py:one_stage_tiny"}
EVERY = 7  # steps between two checkpoints: other moments than the ends of epochs
COMMON = {"space.nodes": 2, "space.operations": ("max_pool_3x3", "skip_connect", "sep_conv_3x3"),
          "search.cells": 1, "checkpoint.every_steps": EVERY,
          "checkpoint.keep_last": 3}  # fmt: skip
OVERRIDES = {
    "two_stage": {"search.epochs": 4, "train.cells": 1, "train.epochs": 3},
    "one_stage": {"search.epochs": 3, "train.cells": 1, "train.epochs": 3},
}
GIVE_UP = 1800  # seconds: no run here takes a tenth of it
UNFINISHED = "*.orbax-checkpoint-tmp*"


def run(
    *,
    kills: int = 20,
    damages: int = 200,
    seed: int = 0,
    schedules: Sequence[str] = tuple(SCHEDULES),
    say: Callable[[str], object] = print,
) -> dict:
    """Kill runs and damage checkpoints; return what was lost, and where to look at it."""
    folder = Path(tempfile.mkdtemp(prefix="istanas_torture_"))
    rng = random.Random(seed)
    results: dict = {"seed": seed, "kills": [], "damages": []}
    for number, schedule in enumerate(schedules):
        share = kills // len(schedules) + (number < kills % len(schedules))
        torture = _Torture(schedule, folder / schedule, rng, say)
        torture.undisturbed()
        if share:
            results["kills"].append(torture.kill(share))
        if damages and not number:  # checkpoints of all schedules are written by the same code
            steps = torture.straight / CHECKPOINTS / Phase("search").folder
            results["damages"] = damage.run(steps, damages, rng, say)
    results["lost"] = sum(len(row["lost"]) for row in results["kills"] + results["damages"])
    if results["lost"]:
        results["folder"] = str(folder)
    else:
        shutil.rmtree(folder)
    return results


class _Torture:
    """The runs of one schedule, in a folder."""

    def __init__(self, schedule: str, folder: Path, rng: random.Random, say):
        self.schedule, self.folder, self.rng, self.say = schedule, folder, rng, say
        folder.mkdir()
        self.straight = folder / "straight"
        keys = COMMON | OVERRIDES[schedule]
        self.overrides = [f"--config.{key}={value}" for key, value in keys.items()]
        paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        compiled = {
            "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        self.environment = compiled | os.environ | {"PYTHONPATH": os.pathsep.join(paths)}

    @contextmanager
    def running(self, workdir: Path) -> Iterator[subprocess.Popen]:
        """Start the command in this folder; it does not outlive the `with`."""
        config = str(ROOT / "configs" / SCHEDULES[self.schedule])
        command = [sys.executable, "-m", "istanas_jax", "run", "--config", config]
        command += ["--workdir", str(workdir), *self.overrides]
        with open(workdir.with_suffix(".log"), "a") as log:
            process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def to_the_end(self, workdir: Path) -> str:
        """Run the command until it ends; say what went wrong, or nothing."""
        with self.running(workdir) as process:
            try:
                code = process.wait(GIVE_UP)
            except subprocess.TimeoutExpired:
                code = f"none after {GIVE_UP} s"
        said = workdir.with_suffix(".log").read_text()[-500:]
        return f"{workdir}: exit code {code}: {said}" if code else ""

    def undisturbed(self) -> None:
        begin = time.monotonic()
        if failed := self.to_the_end(self.straight):
            raise ValueError(f"the undisturbed run failed: {failed}")
        self.saves = sum(last // EVERY for last in self._steps(self.straight).values())
        self.seconds = time.monotonic() - begin
        self.say(f"{self.schedule}: undisturbed in {self.seconds:.0f} s")

    def kill(self, kills: int) -> dict:
        """Kill so many times, in as many runs as it takes; return a row of the table."""
        row = {"schedule": self.schedule, "runs": 0, "kills": 0, "in": {}, "lost": []}
        often = max(1, 2 * self.saves // kills)  # so that they are spread over a run
        while row["kills"] < kills:
            workdir = self.folder / f"killed_{row['runs']}"
            row["runs"] += 1
            while row["kills"] < kills:
                where = self._start_and_kill(workdir, often)
                if where is None:  # it was faster
                    break
                row["kills"] += 1
                row["in"][where] = row["in"].get(where, 0) + 1
                self.say(f"{self.schedule}: kill {row['kills']} of {kills}, {where}")
            row["lost"] += self._finish(workdir)
        return row

    def _start_and_kill(self, workdir: Path, often: int) -> str | None:
        """Kill the run before its next `often` saves; say where, or None if it had ended."""
        before = self._steps(workdir)
        moment = self.rng.choice(("early", "between saves", "saving"))
        after = 0 if moment == "early" else self.rng.randint(1, often)
        delay = self.rng.uniform(0, self.seconds / 2 if moment == "early" else 0.3)
        with self.running(workdir) as process:
            self._wait(process, lambda: self._saved(workdir, before) >= after)
            if moment == "saving":
                self._wait(process, lambda: self._writing(workdir))
            else:
                time.sleep(delay)
            if process.poll() is not None:
                return None
            process.send_signal(signal.SIGKILL)
        return moment

    @staticmethod
    def _wait(process: subprocess.Popen, there: Callable[[], bool]) -> None:
        give_up = time.monotonic() + GIVE_UP
        while process.poll() is None and not there() and time.monotonic() < give_up:
            time.sleep(0.002)

    def _finish(self, workdir: Path) -> list[str]:
        """Run the same command to the end; say what is not as it should be."""
        if failed := self.to_the_end(workdir):
            return [failed]
        left = [p for pattern in (UNFINISHED, "replaced-*", ".*.[0-9]*", "corrupt-*")
                for p in workdir.rglob(pattern)]  # fmt: skip
        return [f"{path} was left" for path in left] + differences(self.straight, workdir)

    @staticmethod
    def _steps(workdir: Path) -> dict[str, int]:
        """The newest step of each phase."""
        newest: dict[str, int] = {}
        for path in workdir.glob(f"{CHECKPOINTS}/*/*"):
            if path.name.isdigit():
                newest[path.parent.name] = max(int(path.name), newest.get(path.parent.name, 0))
        return newest

    def _saved(self, workdir: Path, before: dict[str, int]) -> int:
        """Number of checkpoints saved since then."""
        now = self._steps(workdir)
        return sum((now[phase] - before.get(phase, 0)) // EVERY for phase in now)

    @staticmethod
    def _writing(workdir: Path) -> bool:
        return next(workdir.glob(f"{CHECKPOINTS}/*/{UNFINISHED}"), None) is not None


def table(results: dict) -> str:
    """Format the results as text for people."""
    lines = [f"seed {results['seed']}", "", f"{'killed':<12}{'runs':>6}{'kills':>7}{'lost':>6}"]
    for row in results["kills"]:
        where = ", ".join(f"{number} {name}" for name, number in sorted(row["in"].items()))
        lost = len(row["lost"])
        lines.append(f"{row['schedule']:<12}{row['runs']:>6}{row['kills']:>7}{lost:>6}  {where}")
    if results["damages"]:
        lines += ["", f"{'damaged':<22}{'times':>6}{'harmless':>10}{'older step':>12}{'lost':>6}"]
    for row in results["damages"]:
        counts = f"{row['times']:>6}{row['harmless']:>10}{row['older']:>12}{len(row['lost']):>6}"
        lines.append(f"{row['damage']:<22}{counts}")
    lines.append("")
    lost = [line for row in results["kills"] + results["damages"] for line in row["lost"]]
    lines += [f"lost: {line}" for line in lost] or ["lost: nothing"]
    if "folder" in results:
        lines.append(f"everything is in {results['folder']}")
    return "\n".join(lines)
