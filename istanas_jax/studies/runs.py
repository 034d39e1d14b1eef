"""The runs of a study: their configs, all from one, so that every method has the same budget.

What methods share (images, cells, channels, epochs, batch, rates of W) is in the study's config
once. The images are divided by the study's seed in every run, whatever its own.
"""

import json
from collections.abc import Sequence

from ml_collections import ConfigDict

from istanas_jax.config.files import keep_method
from istanas_jax.devices.parallel import from_leader, is_leader
from istanas_jax.methods import ONE_STAGE
from istanas_jax.runs.folder import RESULT, STARTED
from istanas_jax.runs.phases import Phase
from istanas_jax.schedules import one_stage, retrain, two_stage
from istanas_jax.studies.base import Job, Study
from istanas_jax.training.search_accuracy import read_search


class RunStudy(Study):
    """A study whose jobs are runs."""

    apart = 1  # difference between the seeds of two runs of a method

    def __init__(self, config: ConfigDict, path):
        super().__init__(config, path, writes=is_leader())
        self.methods, self.seeds = tuple(self.settings.methods), self.settings.seeds

    @property
    def all_methods(self) -> list[str]:
        return [*self.methods, *([ONE_STAGE] if self.settings.one_stage else [])]

    def seed_of(self, number: int) -> int:
        """The first seed of a method's run of this number; its searches and trainings count up."""
        return self.config.seed + self.apart * number

    def read(self, folder: str, file: str):
        """Read a JSON file of one of the runs, the same on all hosts; None if it is not there."""
        return from_leader(self.folder.read(f"{folder}/{file}"))

    # Configs.

    def _part(self, schedule: str, gone: Sequence[str], number: int = 0) -> ConfigDict:
        config = self.config.copy_and_resolve_references()
        config.unlock()
        for key in ("study", *gone):
            if key in config:
                del config[key]
        config.schedule = schedule
        config.data.division_seed = config.seed
        config.seed = self.seed_of(number)
        return config

    def two_stage_config(self, method: str, number: int = 0) -> ConfigDict:
        config = self._part("two_stage", [ONE_STAGE], number)
        config.search.method = method
        keep_method(config)
        return config

    def one_stage_config(self, number: int) -> ConfigDict:
        gone = ["space", "search", "train"]
        config = self._part("one_stage", gone, number)
        own = config.one_stage
        del config.one_stage
        config.update(own)
        return config

    def retrain_config(self, genotype: str, number: int, *, of_one_stage=False) -> ConfigDict:
        config = self._part("retrain", [ONE_STAGE], number)
        if of_one_stage:
            config = self.one_stage_config(number)
        config = retrain.config_for(config, genotype, runs=self.config.train.runs)
        config.unlock()
        for key in {"search", "space"} & set(config):
            del config[key]
        return config

    # Jobs.

    def searches(self, method: str) -> Job:
        """A job of one search per seed, in one folder, so that the step is compiled once."""
        name = f"{method}_search"
        config = self.two_stage_config(method)
        config.search.runs = self.seeds

        def done() -> bool:
            return all(self.read(name, Phase("search", i).file) for i in range(self.seeds))

        return Job(name, name, done, lambda: two_stage.search(config, self.folder / name))

    def training(self, method: str, number: int) -> Job:
        """A job that trains from scratch what this search found."""
        name = f"{method}_retrain_{number}"
        of_one_stage = method == ONE_STAGE

        def run() -> None:
            found = self.found(method, number)
            if found is None:  # its search failed, and the study says so
                return
            genotype = json.dumps(found["genotype"])
            config = self.retrain_config(genotype, number, of_one_stage=of_one_stage)
            retrain.run(config, self.folder / name)

        return Job(name, "retrain", lambda: self._trained(name, number), run)

    def _trained(self, name: str, number: int, runs: int | None = None) -> bool:
        """Whether the run ended, with all the seeds it should have."""
        first, runs = self.seed_of(number), runs or self.config.train.runs
        result = self.read(name, RESULT) or {"seeds": []}
        return result["seeds"][:runs] == list(range(first, first + runs))

    def one_stage(self, number: int) -> Job:
        name = f"{ONE_STAGE}_{number}"
        config = self.one_stage_config(number)
        return Job(
            name,
            ONE_STAGE,
            lambda: self._trained(name, number, runs=1),
            lambda: one_stage.run(config, self.folder / name),
        )

    def two_stage(self, method: str, number: int) -> Job:
        """A job that follows the paper: `search.runs` searches, the best of them trained."""
        return self.two_stage_job(
            f"{method}_{number}", self.two_stage_config(method, number), number
        )

    def two_stage_job(self, name: str, config: ConfigDict, number: int) -> Job:
        """A job that is the two-stage run of a config, in a folder of this name."""

        def done() -> bool:
            searches = (self.read(name, RESULT) or {"search": ()})["search"]
            return len(searches) == config.search.runs and self._trained(name, number)

        group = f"run {config.search.method}"
        return Job(name, group, done, lambda: two_stage.run(config, self.folder / name))

    def cell(self, genotype: str, number: int) -> Job:
        """A job that trains a given cell."""
        name = f"{genotype.replace(':', '_')}_{number}"
        config = self.retrain_config(genotype, number)
        run = lambda: retrain.run(config, self.folder / name)  # noqa: E731
        return Job(name, "retrain", lambda: self._trained(name, number), run)

    # Results.

    def found(self, method: str, number: int) -> dict | None:
        """The result of a search; None if there is none yet."""
        if method == ONE_STAGE:
            return self.read(f"{ONE_STAGE}_{number}", RESULT)
        results = self.read(f"{method}_search", Phase("search", number).file)
        return results and read_search(results, self.two_stage_config(method))

    def commit(self, folder: str) -> str:
        return (self.read(folder, STARTED) or {}).get("commit") or "unknown"

    def budget(self) -> str:
        """Say what every method was given."""
        config = self.config
        data, s, r = config.data, config.search, config.train
        images = f"{data.max_images:,}" if data.max_images else "all"
        kept_out = 100 * data.holdout_fraction
        held = f", {kept_out:g} % of them held out" if kept_out else ""
        seeds = ", ".join(str(self.seed_of(number)) for number in range(self.seeds))
        searched = (
            f"search with {s.cells} cells of {s.channels} channels, {s.epochs} epochs, batch "
            f"{s.batch}; "
        )
        return (
            f"The same for every method: {data.name}, {images} training images{held}, divided in "
            f"one way; {searched if self.methods else ''}training from scratch with {r.cells} "
            f"cells of {r.channels} channels, {r.epochs} epochs, batch {r.batch}; seeds {seeds}. "
            "The test split is read once by each trained network, and decides nothing."
        ) + self._own_budgets()

    def _own_budgets(self) -> str:
        words = ""
        if "random" in self.methods:
            genotypes = self.config.search.random.genotypes
            words += (
                f" Random search trains {genotypes} genotypes in these epochs, an equal share each."
            )
        if "pdarts" in self.methods:
            own = self.config.search.pdarts
            words += (
                f" P-DARTS has sizes of its own: stages of {own.epochs} epochs with "
                f"{', '.join(map(str, own.stage_cells))} cells."
            )
        if self.settings.one_stage:
            s, t = self.config.one_stage.search, self.config.one_stage.train
            words += (
                f" One-stage searches with {s.cells} cells of {s.channels} channels, up to "
                f"{s.epochs} epochs at batch {s.batch}, and trains for {t.epochs} more."
            )
        return words
