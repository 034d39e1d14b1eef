"""How good are the networks that a method finds, and at what cost? Tables 3 and 4 of the paper.

Each method and seed has a whole two-stage run: several searches, of which the best on images that
trained no weights is trained from scratch. Random search has the same budget as the others. Given
cells can be trained in the same way, and one-stage ISTA-NAS searched and trained.
"""

from ml_collections import ConfigDict

from istanas_jax.judge import regression
from istanas_jax.methods import title_of
from istanas_jax.runs.folder import RESULT, SIZES
from istanas_jax.runs.progress import format_seconds
from istanas_jax.space import paper_tables
from istanas_jax.space.genotype import Genotype
from istanas_jax.studies import plots
from istanas_jax.studies.base import Job, percent, table
from istanas_jax.studies.runs import RunStudy
from istanas_jax.studies.stats import mean_and_deviation


class AccuracyStudy(RunStudy):
    title = "Networks found: accuracy, size and cost (the paper's Tables 3 and 4)"
    apart = 100  # a run holds several searches and trainings, of which no two are to be the same

    def __init__(self, config: ConfigDict, path):
        for phase in ("search", "train"):
            if config[phase].runs > self.apart:
                raise ValueError(
                    f"{phase}.runs is {config[phase].runs}, but runs of study accuracy have "
                    f"{self.apart} seeds each: give at most so many"
                )
        super().__init__(config, path)

    def jobs(self) -> list[Job]:
        jobs = []
        for number in range(self.seeds):
            jobs += [self.two_stage(method, number) for method in self.methods]
            jobs += [self.one_stage(number)] if self.settings.one_stage else []
            jobs += [self.cell(genotype, number) for genotype in self.settings.cells]
        return jobs

    def results(self) -> dict:
        return {"rows": [self._row(name) for name in [*self.all_methods, *self.settings.cells]]}

    def _row(self, name: str) -> dict:
        runs = []
        for number in range(self.seeds):
            folder = f"{name.replace(':', '_')}_{number}"
            result = self.read(folder, RESULT)
            if result is not None:
                runs.append(self._run(folder, result))
        each = [value for run in runs for value in run["test_accuracies"]]
        tables = paper_tables.IMAGENET if self._imagenet else paper_tables.CIFAR10
        printed = paper_tables.find_row(tables, name)
        return {
            "method": name,
            "runs": runs,
            "test_accuracy": mean_and_deviation(each),
            "trainings": len(each),
            "top5": mean_and_deviation([run["test_top5_accuracy"] for run in runs])[0],
            **{
                key: mean_and_deviation([run[key] for run in runs if run[key] is not None])[0]
                for key in ("parameters", "multiply_adds", "search_s", "train_s", "percentile")
            },
            "paper": printed and printed.columns,
        }

    def _run(self, folder: str, result: dict) -> dict:
        sizes = self.read(folder, SIZES)
        spent = {phase: part["total"] for phase, part in result["seconds"].items()}
        # A run may hold several searches, of which one is used, and trainings, which are averaged.
        training = spent.get("retrain", spent.get("train", 0.0)) / len(result["seeds"])
        return {
            "folder": folder,
            "seeds": result["seeds"],
            "test_accuracies": result["test_accuracies"],
            "test_top5_accuracy": result["test_top5_accuracy"],
            "parameters": result["parameters"],
            "multiply_adds": sizes and sizes["multiply_adds"],
            "search_s": spent.get("search"),
            "train_s": training,
            "percentile": percentile_of(result["genotype"]),
            "commit": self.commit(folder),
        }

    @property
    def _imagenet(self) -> bool:
        return self.config.data.name == "imagenet2012" or self.config.train.stem == "imagenet"

    def markdown(self, results: dict) -> list[str]:
        head = ["", "trainings", "test error, %", "top-5 error, %", "parameters", "multiply-adds"]
        head += ["search", "a training", "judge's percentile"]
        head += ["the paper's error, %", "parameters", "search", "training"]
        words = (
            f"{self.budget()} A run is {self.config.search.runs} searches, of which the best on "
            "images that trained no weights is kept (their time is counted), and "
            f"{self.config.train.runs} trainings of it, with the seeds from the run's own "
            "on. Mean ± deviation over all trainings; times are of this machine, compiling "
            "included. The judge's percentile is the share of random cells that a regression on "
            "cells trained by others expects to do worse, if it knows cells of this kind. The "
            "last four columns are the paper's: million parameters and GPU-days of a "
            "GTX 1080Ti, at the paper's size."
        )
        return [words, table(head, [self._line(row) for row in results["rows"]]), _runs(results)]

    def _line(self, row: dict) -> list[str]:
        mean, deviation = row["test_accuracy"]
        top5 = row["top5"]
        return [
            title_of(row["method"]),
            f"{row['trainings']}",
            percent(None if mean is None else 1 - mean, deviation),
            percent(None if top5 is None else 1 - top5),
            *(millions(row[key]) for key in ("parameters", "multiply_adds")),
            *(seconds(row[key]) for key in ("search_s", "train_s")),
            "-" if row["percentile"] is None else f"{row['percentile']:.1f}",
            *(row["paper"] or ["-"] * 4),
        ]

    def plot(self, results: dict, path) -> None:
        plots.dots([row for row in results["rows"] if row["runs"]], path)


def percentile_of(genotype: dict) -> float | None:
    """The judge's percentile, or None if it does not know such cells."""
    cells = Genotype.from_dict(genotype)
    return None if regression.why_not(cells) else regression.judge(cells).percentile


def _runs(results: dict) -> str:
    head = ["run", "seeds", "test accuracies, %", "parameters", "commit"]
    return table(
        head,
        [
            [
                run["folder"],
                ", ".join(map(str, run["seeds"])),
                ", ".join(map(percent, run["test_accuracies"])),
                f"{run['parameters']:,}",
                run["commit"],
            ]
            for row in results["rows"]
            for run in row["runs"]
        ],
    )


def millions(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e6:.3f} M"


def seconds(value: float | None) -> str:
    return "-" if value is None else format_seconds(value)
