"""What does a search step of each method cost? Table 1 of the paper.

Every (method, batch size) is compiled and timed in a process of its own, by the code of
`bench step --method`: the step of a run, on random images.
"""

import json
import os
import subprocess
import sys
from functools import partial

from ml_collections import ConfigDict

from istanas_jax.config.files import keep_method
from istanas_jax.methods import title_of
from istanas_jax.runs.interrupts import Interrupted, Stop
from istanas_jax.runs.progress import format_seconds
from istanas_jax.space import paper_tables
from istanas_jax.studies import plots
from istanas_jax.studies.base import Job, Study, table
from istanas_jax.training.errors import TrainingError

KILLED = -9  # exit code of a process that the system ended for its memory
WAIT = 0.5  # seconds between two looks at whether this process is to stop


class CostStudy(Study):
    title = "What a search step costs (the paper's Table 1)"

    def jobs(self) -> list[Job]:
        return [
            Job(
                self._name(method, batch),
                method,
                partial((self.folder / f"{self._name(method, batch)}.json").exists),
                partial(self._measure, method, batch),
            )
            for method in self.settings.methods
            for batch in self.settings.batches
        ]

    def _name(self, method: str, batch: int) -> str:
        return f"{method}_{batch}"

    def measurement_config(self, method: str, batch: int) -> ConfigDict:
        """The config of one measurement: the study's, with this method and batch."""
        config = self.config.copy_and_resolve_references()
        config.unlock()
        del config.study
        config.schedule = "two_stage"
        config.search.update({"method": method, "batch": batch})
        keep_method(config)
        return config

    def _measure(self, method: str, batch: int) -> None:
        config = self.measurement_config(method, batch)
        asked = json.dumps({"config": config.to_dict(), "steps": self.settings.steps})
        code, out, err = _process(asked)
        if code == KILLED:
            results = {"out_of_memory": "the system ended the process"}
        elif code:
            last = (err.strip().splitlines() or ["no word of it"])[-1]
            raise TrainingError(f"the step could not be measured: {last}")
        else:
            results = json.loads(out.splitlines()[-1])
        results |= {"method": method, "batch": batch, "config": config.to_dict()}
        self.folder.write(f"{self._name(method, batch)}.json", results)

    def results(self) -> dict:
        rows = []
        for method in self.settings.methods:
            for batch in self.settings.batches:
                results = self.folder.read(f"{self._name(method, batch)}.json")
                if results is not None:
                    results.pop("config")  # is that of the study but for method and batch
                    rows.append(results | _projected(results))
        return {"rows": rows}

    def markdown(self, results: dict) -> list[str]:
        head = ["method", "batch", "step, s", "images/s", "trace + compile, s"]
        head += ["memory by the compiler, GiB", "measured, GiB", "projected search"]
        head += ["the paper's memory, GB", "its search, days"]
        rows = results["rows"]
        lines = [_line(row) for row in rows]
        search = self.config.search
        words = (
            f"The step of a run: {search.cells} cells, {search.channels} channels, "
            f"{search.dtype}, random images of {self.config.data.name}; the median of "
            f"{self.settings.steps} steps after the first, each method and batch in a process of "
            "its own. Images per second count those that train W. Memory by the compiler: "
            "temporary arrays and results of a step, beside state and batch; measured: how far the "
            "memory in use grew while steps ran."
        )
        projection = (
            f"Projected search: step time x steps of {search.epochs} epochs over "
            f"{100 * search.weights_fraction:g} % of the training images. It takes all steps for "
            "steps at which the architecture is trained too (PC-DARTS trains W alone at first), "
            "and counts neither compiling nor evaluation, recovery, data and checkpoints. The last "
            "two columns are the paper's, of a GTX 1080Ti."
        )
        about = {f"{row['devices']}, commit {row['commit']}" for row in rows if "devices" in row}
        return [words, table(head, lines), projection, *(f"On {one}." for one in sorted(about))]

    def plot(self, results: dict, path) -> None:
        free = [row["free_mb"] for row in results["rows"] if "free_mb" in row]
        plots.against_batch(results["rows"], min(free, default=None), path)


def _process(asked: str) -> tuple[int, str, str]:
    """Run a measurement, which stops with this process; return exit code, output and errors."""
    command = [sys.executable, "-m", "istanas_jax.studies.measurement"]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = os.environ | {"PYTHONPATH": path}
    with Stop() as stop, subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        given: str | None = asked
        while True:
            try:
                out, err = process.communicate(given, timeout=WAIT)
                if stop.signal is None:  # otherwise it may be that which ended the process
                    return process.returncode, out, err
            except subprocess.TimeoutExpired:
                given = None  # it has it
            if stop.signal is not None:
                process.kill()
                raise Interrupted("stopped; the same command continues from there", stop.signal)


def _projected(row: dict) -> dict:
    """The projected seconds of a search; None if it has stages: only the first was measured."""
    if not row.get("step_s_median") or row["stages"] > 1:
        return {"projected_s": None}
    return {"projected_s": row["step_s_median"] * row["steps_per_epoch"] * row["epochs"]}


def _line(row: dict) -> list[str]:
    memory, days = paper_tables.COST.get((row["method"], row["batch"]), ("-", "-"))
    step, projected = row.get("step_s_median"), row["projected_s"]
    compiled = [row[key] for key in ("trace_s", "compile_s") if key in row]
    return [
        title_of(row["method"]),
        f"{row['batch']}",
        f"{step:.3f}" if step else "out of memory" if "out_of_memory" in row else "-",
        f"{row['batch'] / step:.0f}" if step else "-",
        " + ".join(f"{seconds:.0f}" for seconds in compiled) or "-",
        *(f"{row[key] / 1024:.2f}" if key in row else "-" for key in ("needed_mb", "measured_mb")),
        f"{format_seconds(projected)}" if projected else "-",
        f"{memory}",
        f"{days}",
    ]
