"""Does a method find good networks in every search space, also where others collapse?

Each space, method and seed has a whole two-stage run under the same budget. Beside the accuracy
after training stand the connections without weights, in which a collapse shows, and the cost.
"""

from istanas_jax.methods import title_of
from istanas_jax.runs.folder import RESULT
from istanas_jax.space.genotype import Genotype, weight_free
from istanas_jax.space.spaces import suite_net
from istanas_jax.studies import plots
from istanas_jax.studies.accuracy import AccuracyStudy, millions, seconds
from istanas_jax.studies.base import Job, percent, table
from istanas_jax.studies.stats import mean_and_deviation


class SuiteStudy(AccuracyStudy):
    title = "Methods over search spaces"

    def jobs(self) -> list[Job]:
        """Seed by seed, so that a study stopped early has all spaces and methods."""
        return [
            self._job(space, method, number)
            for number in range(self.seeds)
            for space, method in self._pairs
        ]

    @property
    def _pairs(self) -> list[tuple[str, str]]:
        return [(space, method) for space in self.settings.spaces for method in self.methods]

    def _job(self, space: str, method: str, number: int) -> Job:
        config = self.two_stage_config(method, number)
        config.space.name = space
        config.search.update(suite_net(space))
        return self.two_stage_job(f"{space}_{method}_{number}", config, number)

    def results(self) -> dict:
        return {"rows": [self._space_row(*pair) for pair in self._pairs]}

    def _space_row(self, space: str, method: str) -> dict:
        runs = []
        for number in range(self.seeds):
            folder = f"{space}_{method}_{number}"
            if (result := self.read(folder, RESULT)) is not None:
                free = weight_free(Genotype.from_dict(result["genotype"]))
                runs.append(self._run(folder, result) | {"weight_free": free})
        each = [value for run in runs for value in run["test_accuracies"]]
        row = {"space": space, "method": method, "runs": runs, "trainings": len(each)}
        row["test_accuracy"] = mean_and_deviation(each)
        row["weight_free"] = [
            mean_and_deviation([run["weight_free"][cell] for run in runs])[0] for cell in (0, 1)
        ]
        for key in ("parameters", "multiply_adds", "search_s", "train_s"):
            row[key] = mean_and_deviation([run[key] for run in runs if run[key] is not None])[0]
        return row

    def markdown(self, results: dict) -> list[str]:
        head = ["space", "method", "trainings", "test accuracy, %", "without weights: normal"]
        head += ["reduction", "parameters", "multiply-adds", "search", "a training"]
        words = (
            f"{self.budget()} Mean ± deviation over all trainings. Without weights: pools, "
            "skip-connections, zeros and noise among the connections of a cell, the mean over "
            "seeds. Times are of this machine, compiling included."
        )
        return [words, table(head, [_line(row) for row in results["rows"]]), self._each(results)]

    def _each(self, results: dict) -> str:
        head = ["run", "seeds", "test accuracies, %", "without weights", "parameters", "commit"]
        runs = [run for row in results["rows"] for run in row["runs"]]
        return table(
            head,
            [
                [
                    run["folder"],
                    ", ".join(map(str, run["seeds"])),
                    ", ".join(map(percent, run["test_accuracies"])),
                    "{} + {}".format(*run["weight_free"]),
                    f"{run['parameters']:,}",
                    run["commit"],
                ]
                for run in runs
            ],
        )

    def plot(self, results: dict, path) -> None:
        rows = [
            row | {"label": f"{row['space']}, {title_of(row['method'])}"}
            for row in results["rows"]
            if row["runs"]
        ]
        plots.dots(rows, path)


def _line(row: dict) -> list[str]:
    return [
        row["space"],
        title_of(row["method"]),
        f"{row['trainings']}",
        percent(*row["test_accuracy"]),
        *("-" if free is None else f"{free:.1f}" for free in row["weight_free"]),
        *(millions(row[key]) for key in ("parameters", "multiply_adds")),
        *(seconds(row[key]) for key in ("search_s", "train_s")),
    ]
