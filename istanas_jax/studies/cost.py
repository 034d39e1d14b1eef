"""What does a search step of each method cost? Table 1 of the paper.

Every (method, batch size) is compiled and timed in a process of its own, by the code of
`bench step --method`: the step of a run, on random images.
"""

from functools import partial

from ml_collections import ConfigDict

from istanas_jax.bench.costs.apart import measure_apart
from istanas_jax.config.files import keep_method
from istanas_jax.methods import title_of
from istanas_jax.runs.progress import format_seconds
from istanas_jax.space import paper_tables
from istanas_jax.studies import plots
from istanas_jax.studies.base import Job, Study, table


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
        results = measure_apart(config, self.settings.steps)
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
