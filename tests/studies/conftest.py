"""Drivers that make runs up."""

import json

import pytest
from made_up_studies import genotype, leave, result_of

from istanas_jax.studies import runs


@pytest.fixture
def drivers(monkeypatch):
    """Instead of the real ones; the list of what was run, and a dict of what is to be raised."""
    done, trouble = [], {}

    def begin(config, folder):
        done.append(folder.name)
        if folder.name in trouble:
            raise trouble.pop(folder.name)

    def search(config, folder):
        begin(config, folder)
        found = {
            f"search_{i}": {
                "genotype": genotype(i),
                "accuracy_of": "b",
                "accuracy": 0.5 + i / 100,
                "coefficients": [[[0.1, 0.2]] * 2] * 2,
                "seconds": {"total": 60.0},
            }
            for i in range(config.search.runs)
        }
        leave(folder, config, **found)
        rows = [
            {"phase": f"search {i}", "epoch": e, "step": e, "heldout_accuracy": 0.1 * e,
             "distance": [[0.1, 0.2], [0.3, 0.4]], "seconds": {"total": 90.0 * e, "compile": 30.0}}
            for i in range(config.search.runs) for e in (1, 2)
        ]  # fmt: skip
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def train(config, folder):
        begin(config, folder)
        accuracy = 0.7 - config.seed % 100 / 100  # the other way round than in search
        leave(folder, config, result=result_of(config, accuracy, seeds=config.train.runs))

    def two(config, folder):
        begin(config, folder)
        made = {"seeds": config.train.runs, "searches": config.search.runs}
        leave(folder, config, result=result_of(config, 0.8 + config.seed / 1e4, **made))

    def one(config, folder):
        begin(config, folder)
        leave(folder, config, result=result_of(config, 0.6 + config.seed % 100 / 100, seeds=1))

    monkeypatch.setattr(runs.two_stage, "search", search)
    monkeypatch.setattr(runs.two_stage, "run", two)
    monkeypatch.setattr(runs.one_stage, "run", one)
    monkeypatch.setattr(runs.retrain, "run", train)
    return done, trouble
