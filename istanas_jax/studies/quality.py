"""Are the cells that a method finds better than random ones, given the same minutes?

Each method and seed has a search of at most `study.minutes`. The judge, a regression on cells that
others have trained, gives each found cell a percentile among random cells. Some of the found cells
and some random ones are also trained from scratch in the same way.
"""

import json
from dataclasses import asdict
from functools import partial

from ml_collections import ConfigDict

from istanas_jax.bench import search_time
from istanas_jax.judge import regression
from istanas_jax.methods import title_of
from istanas_jax.runs.progress import format_seconds
from istanas_jax.schedules import retrain, two_stage
from istanas_jax.space.genotype import Genotype, random_genotype, weight_free
from istanas_jax.space.spaces import read_space
from istanas_jax.studies import plots
from istanas_jax.studies.base import Job, percent, table
from istanas_jax.studies.minutes import epochs_that_fit, with_epochs
from istanas_jax.studies.runs import RunStudy
from istanas_jax.studies.stats import mean_and_deviation, mean_difference, mean_interval

RANDOM_CELLS = "random cells"  # drawn and trained, not searched for
FIRST_RANDOM = 1000  # seeds of random cells are far from those of the searches


class QualityStudy(RunStudy):
    title = "Are the found cells better than random ones?"

    # Jobs.

    def jobs(self) -> list[Job]:
        """Timings first, then seed by seed, so that a study stopped early has all methods."""
        jobs = [self._timing(method) for method in self.methods]
        for number in range(self.seeds):
            jobs += [self._search(method, number) for method in self.methods]
        trained = self.settings.trained
        for number in range(min(trained.found, self.seeds)):
            jobs += [self._train_found(method, number) for method in self._trained_methods]
        jobs += [self._train_random(number) for number in range(trained.random)]
        return jobs

    @property
    def _trained_methods(self) -> list[str]:
        return [method for method in self.settings.trained.methods if method in self.methods]

    def _timing(self, method: str) -> Job:
        """A job that measures once how many epochs the method has."""
        file = f"epochs_{method}.json"

        def run() -> None:
            config = self.two_stage_config(method)
            times = search_time.run(config, steps=self.settings.steps)
            epochs = epochs_that_fit(config, times, self.settings.minutes)
            self.folder.write(file, times | {"epochs": epochs})

        return Job(f"epochs_{method}", "timing", lambda: self._times(method) is not None, run)

    def _times(self, method: str) -> dict | None:
        return self.read(".", f"epochs_{method}.json")

    def search_config(self, method: str, number: int) -> ConfigDict:
        """The config of a method's searches up to this number, with the epochs that fit."""
        config = self.two_stage_config(method)
        with_epochs(config, self._times(method)["epochs"])
        config.search.runs = number + 1
        return config

    def _search(self, method: str, number: int) -> Job:
        folder = f"{method}_search"

        def run() -> None:
            two_stage.search(self.search_config(method, number), self.folder / folder)

        done = lambda: self.read(folder, f"search_{number}.json") is not None  # noqa: E731
        return Job(f"{folder} {number}", folder, done, run)

    def _train_found(self, method: str, number: int) -> Job:
        def genotype() -> Genotype | None:
            found = self.found(method, number)
            return found and Genotype.from_dict(found["genotype"])

        return self._train(f"{method}_retrain_{number}", genotype)

    def _train_random(self, number: int) -> Job:
        return self._train(f"random_cell_{number}", partial(self._random_cell, number))

    def _random_cell(self, number: int) -> Genotype:
        return random_genotype(self.seed_of(FIRST_RANDOM + number), read_space(self.config.space))

    def _train(self, name: str, genotype) -> Job:
        """Train a cell from scratch, each with the same seeds; nothing if its search failed."""
        runs = self.settings.trained.seeds

        def run() -> None:
            if (cells := genotype()) is None:
                return
            config = self.retrain_config(json.dumps(cells.to_dict()), 0)
            config.train.runs = runs
            retrain.run(config, self.folder / name)

        return Job(name, "retrain", lambda: self._trained(name, 0, runs=runs), run)

    # Figures.

    def results(self) -> dict:
        rows = [self._row(method) for method in self.methods]
        random = self._trainings("random_cell", self.settings.trained.random)
        for row in rows:
            means = ([cell["mean"] for cell in cells] for cells in (row["trained"], random))
            row["above_random"] = asdict(mean_difference(*means))
        judged = [regression.judge(self._random_cell(cell["number"])) for cell in random
                  if regression.why_not(self._random_cell(cell["number"])) is None]  # fmt: skip
        beside = {"trained": random, "percentiles": [verdict.percentile for verdict in judged]}
        return {"rows": rows, RANDOM_CELLS: beside}

    def _row(self, method: str) -> dict:
        runs = [run for number in range(self.seeds) if (run := self._run(method, number))]
        percentiles = [run["percentile"] for run in runs if run["percentile"] is not None]
        resampling = {"resamples": self.settings.resamples, "seed": self.config.seed}
        trained = method in self._trained_methods
        return {
            "method": method,
            "runs": runs,
            "times": self._times(method),
            "percentile": mean_and_deviation(percentiles)[0],
            "interval": mean_interval(percentiles, **resampling),
            "lowest": min(percentiles, default=None),
            "trained": self._trainings(f"{method}_retrain", self.seeds) if trained else [],
        }

    def _run(self, method: str, number: int) -> dict | None:
        """The result of one search, if it is there."""
        found = self.found(method, number)
        if found is None:
            return None
        genotype = Genotype.from_dict(found["genotype"])
        why_not = regression.why_not(genotype)
        verdict = None if why_not else regression.judge(genotype)
        seconds = found["seconds"]
        return {
            "seed": self.seed_of(number),
            "genotype": found["genotype"],
            "percentile": verdict and verdict.percentile,
            "predicted": verdict and verdict.accuracy,
            "remark": why_not or verdict.warning,
            "weight_free": weight_free(genotype),
            "accuracy": found["accuracy"],
            "seconds": seconds["total"] - seconds.get("compile", 0.0),
            "compile_s": seconds.get("compile", 0.0),
            "commit": self.commit(f"{method}_search"),
        }

    def _trainings(self, name: str, count: int) -> list[dict]:
        """The trained cells of this name: test accuracies, a value per seed, and their mean."""
        cells = []
        for number in range(count):
            result = self.read(f"{name}_{number}", "result.json")
            if result is not None:
                each = result["test_accuracies"]
                cells.append({"number": number, "each": each, "mean": sum(each) / len(each)})
        return cells

    # Words.

    def markdown(self, results: dict) -> list[str]:
        settings, held_out = self.settings, regression.coefficients()["held_out"]
        judge = (
            "Percentile: the share of random cells that the judge predicts to do worse, 50 for "
            "random cells by construction. The judge is a regression on cells that others trained "
            f"on CIFAR-10 (Spearman {held_out['spearman']:.2f} on cells it has not seen); it "
            "cannot judge collapsed cells or other data. The interval is a percentile bootstrap of "
            f"the mean over seeds ({settings.resamples} resamples). Without weights: pools and "
            "skip-connections, the mean over seeds. Seconds are those of a search, compiling apart."
        )
        head = ["method", "seeds", "epochs", "percentile", "95 % interval", "lowest"]
        head += ["without weights: normal", "reduction", "search", "compiling"]
        lines = [_line(row) for row in results["rows"]]
        lines.append([RANDOM_CELLS, "-", "-", "50.0", "-", "-", *["-"] * 4])
        parts = [f"{self._same_minutes()} {self.budget()}", judge, table(head, lines)]
        return [*parts, *self._trained_words(results), _seeds(results)]

    def budget(self) -> str:
        config = self.config
        images = f"{config.data.max_images:,}" if config.data.max_images else "all"
        seeds = ", ".join(str(self.seed_of(number)) for number in range(self.seeds))
        return (
            f"The same for every method: {config.data.name}, {images} training images, divided in "
            f"one way; {config.search.cells} cells of {config.search.channels} channels, batch "
            f"{config.search.batch}; seeds {seeds}."
        )

    def _same_minutes(self) -> str:
        return (
            f"Every search has {self.settings.minutes:g} minutes, compiling not counted: as many "
            "epochs as fit by the time of a step measured before; ISTA-NAS no more than its config "
            "has. Random search is the best, on images that trained no weights, of as many random "
            "cells as it can train in the same minutes."
        )

    def _trained_words(self, results: dict) -> list[str]:
        random = results[RANDOM_CELLS]["trained"]
        trained = [(title_of(row["method"]), row["trained"], row["above_random"])
                   for row in results["rows"] if row["trained"]]  # fmt: skip
        if not random and not trained:
            return []
        r = self.config.train
        head = ["trained from scratch", "cells", "test accuracy, %", "above random cells, points"]
        lines = []
        for name, cells, above in [*trained, (RANDOM_CELLS, random, None)]:
            difference = above and above["difference"]
            said = "-"
            if difference is not None:
                said = (
                    f"{100 * difference:+.2f}, standard error {100 * above['standard_error']:.2f}"
                )
            means = [cell["mean"] for cell in cells]
            lines.append([name, f"{len(cells)}", percent(*mean_and_deviation(means)), said])
        words = (
            f"Trained alike: {r.cells} cells of {r.channels} channels, {r.epochs} epochs, batch "
            f"{r.batch}, {self.settings.trained.seeds} seeds for every cell, the same for all. A "
            "cell counts with its mean over seeds; ± is the deviation over cells. The test split "
            "is read once by each trained network, and decides nothing."
        )
        each = [
            [f"{name} {cell['number']}", ", ".join(map(percent, cell["each"]))]
            for name, cells, _ in [*trained, (RANDOM_CELLS, random, None)]
            for cell in cells
        ]
        return [words, table(head, lines), table(["cell", "test accuracies, %"], each)]

    def plot(self, results: dict, path) -> None:
        plots.strips([row for row in results["rows"] if row["percentile"] is not None], path)


def _line(row: dict) -> list[str]:
    runs, (low, high) = row["runs"], row["interval"]
    normal, reduction = (
        mean_and_deviation([run["weight_free"][cell] for run in runs])[0] for cell in (0, 1)
    )
    seconds, compiling = (
        mean_and_deviation([run[key] for run in runs])[0] for key in ("seconds", "compile_s")
    )
    return [
        title_of(row["method"]),
        f"{len(runs)}",
        f"{row['times']['epochs']}" if row["times"] else "-",
        _number(row["percentile"]),
        "-" if low is None else f"{low:.1f} to {high:.1f}",
        _number(row["lowest"]),
        _number(normal),
        _number(reduction),
        *("-" if value is None else format_seconds(value) for value in (seconds, compiling)),
    ]


def _seeds(results: dict) -> str:
    """A table of every search."""
    head = ["method", "seed", "percentile", "predicted, %", "without weights", "search", "commit"]
    head += ["remark"]
    return table(
        head,
        [
            [
                title_of(row["method"]),
                f"{run['seed']}",
                _number(run["percentile"]),
                _number(run["predicted"], 2),
                "{} + {}".format(*run["weight_free"]),
                format_seconds(run["seconds"]),
                run["commit"],
                run["remark"] or "",
            ]
            for row in results["rows"]
            for run in row["runs"]
        ],
    )


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
