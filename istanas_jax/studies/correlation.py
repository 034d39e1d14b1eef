"""Does accuracy in search tell accuracy after training? Table 2 of the paper.

Each method and seed has a search, whose super-net is tested on images that trained none of its
weights, and a training from scratch of the genotype found. Kendall's tau says how alike the two
orders are. For one-stage, the accuracy of the net that search and training gave together takes the
place of the first.
"""

from dataclasses import asdict

from istanas_jax.methods import ONE_STAGE, title_of
from istanas_jax.runs.folder import RESULT
from istanas_jax.space import paper_tables
from istanas_jax.studies import plots
from istanas_jax.studies.base import Job, percent, table
from istanas_jax.studies.runs import RunStudy
from istanas_jax.studies.stats import correlate, mean_and_deviation
from istanas_jax.training.search_accuracy import IMAGES, accuracy_of


class CorrelationStudy(RunStudy):
    title = "Accuracy in search against accuracy after training (the paper's Table 2)"

    def jobs(self) -> list[Job]:
        """Searches, then trainings seed by seed, so that an early stop leaves all methods."""
        jobs = [self.searches(method) for method in self.methods]
        for number in range(self.seeds):
            jobs += [self.training(method, number) for method in self.methods]
        if self.settings.one_stage:
            for number in range(self.seeds):
                jobs += [self.one_stage(number), self.training(ONE_STAGE, number)]
        return jobs

    def results(self) -> dict:
        rows = []
        for method in self.all_methods:
            pairs = [pair for n in range(self.seeds) if (pair := self._pair(method, n))]
            before, after = ([pair[k] for pair in pairs] for k in ("search", "retrained"))
            found = correlate(
                before, after, resamples=self.settings.resamples, seed=self.config.seed
            )
            means = (mean_and_deviation(values) for values in (before, after))
            rows.append(
                {
                    "method": method,
                    "pairs": pairs,
                    **dict(zip(("search", "retrained"), means, strict=True)),
                    **asdict(found),
                    "paper_tau": paper_tables.TAU.get(method),
                }
            )
        return {"rows": rows}

    def _pair(self, method: str, number: int) -> dict | None:
        """Both accuracies of a seed, if they are there."""
        found = self.found(method, number)
        name = f"{method}_retrain_{number}"
        trained = self.read(name, RESULT)
        if found is None or trained is None:
            return None
        key = "test_accuracy" if method == ONE_STAGE else "accuracy"
        return {
            "seed": self.config.seed + number,
            "search": found[key],
            "retrained": trained["test_accuracy"],
            "parameters": trained["parameters"],
            "commit": self.commit(name),
        }

    def markdown(self, results: dict) -> list[str]:
        head = ["method", "seeds", "in search, %", "trained from scratch, %", "Kendall's tau"]
        head += ["95 % interval", "p", "the paper's tau (8 seeds)"]
        lines = [self._line(row) for row in results["rows"]]
        about: dict[str, list[str]] = {}
        for row in results["rows"]:
            if row["words"]:
                about.setdefault(row["words"], []).append(title_of(row["method"]))
        remarks = [f"{', '.join(methods)}: {words}." for words, methods in about.items()]
        on = accuracy_of("two_stage", holds_out=self.config.data.holdout_fraction > 0)
        words = (
            f"{self.budget()} In search: the super-net on {IMAGES[on]}, which trained no weights; "
            "for one-stage, the net that search and training gave together, on the test split. "
            "Trained from scratch: on the test split. Mean ± deviation over seeds. The interval is "
            f"a percentile bootstrap over seeds ({self.settings.resamples} resamples); p is that "
            "of a tau this far from 0 without any correlation. The paper's column is the paper's."
        )
        return [words, table(head, lines), *remarks, self._seeds(results)]

    def _line(self, row: dict) -> list[str]:
        tau = "-" if row["tau"] is None else f"{row['tau']:+.2f}"
        if row["tau"] is not None and abs(row["tau"] - row["tau_a"]) > 1e-9:
            tau += f" (the paper's formula, with ties: {row['tau_a']:+.2f})"
        theirs = row["paper_tau"]
        return [
            title_of(row["method"]),
            f"{row['n']}",
            percent(*row["search"]),
            percent(*row["retrained"]),
            tau,
            "-" if row["low"] is None else f"{row['low']:+.2f} to {row['high']:+.2f}",
            "-" if row["p"] is None else f"{row['p']:.2g}",
            "-" if theirs is None else f"{theirs:+.2f}",
        ]

    def _seeds(self, results: dict) -> str:
        """A table of every pair of accuracies."""
        head = ["method", "seed", "in search, %", "trained, %", "parameters", "commit"]
        return table(
            head,
            [
                [
                    title_of(row["method"]),
                    f"{pair['seed']}",
                    percent(pair["search"]),
                    percent(pair["retrained"]),
                    f"{pair['parameters']:,}",
                    pair["commit"],
                ]
                for row in results["rows"]
                for pair in row["pairs"]
            ],
        )

    def plot(self, results: dict, path) -> None:
        plots.scatter([row for row in results["rows"] if row["pairs"]], path)
