"""Every search method through a whole run on tiny digits, killed and started again."""

import json

import pytest
from conftest import ROOT
from reads import Reads

from istanas_jax import two_stage
from istanas_jax.config_files import keys, load_config
from istanas_jax.genotype import Genotype
from istanas_jax.methods import METHODS
from istanas_jax.search import TwoStageSearch

SMALL = [
    "architecture.nodes=1",
    "search.cells=1",
    "retrain.cells=1",
    "search.epochs=2",
    "retrain.epochs=1",
    "data.limit=140",
    "data.mean=(0.3,)",
    "data.std=(0.4,)",
    "checkpoint.every_steps=2",
]
OWN = {
    "random": ["search.random.genotypes=2"],
    "pdarts": [
        "search.pdarts.stage_cells=(1, 1)",
        "search.pdarts.candidates=(8, 3)",
        "search.pdarts.dropout=(0.0, 0.4)",
        "search.pdarts.epochs=2",
    ],
}
UNREAD = {"data.dir"}  # the digits lie in a package


class Killed(BaseException):
    """Nothing is saved any more."""


def config_of(method):
    overrides = [f"search.method={method}", *SMALL, *OWN.get(method, [])]
    spec = str(ROOT / "configs" / "digits.py:tiny")
    return load_config(spec, [f"--config.{override}" for override in overrides])


def rows(workdir, name="metrics.jsonl"):
    found = [json.loads(line) for line in (workdir / name).read_text().splitlines()]
    return [row | {"seconds": 0, "images_per_second": 0} for row in found]


@pytest.mark.parametrize("method", [method for method in METHODS if method != "ista"])
def test_run_killed_and_resumed(method, tmp_path, monkeypatch, capsys):
    config = config_of(method)
    reads = Reads(config)
    straight = two_stage.run(reads, tmp_path / "straight")
    assert set(keys(config)) - reads.found == UNREAD
    Genotype.from_dict(straight["genotype"])
    replay = rows(tmp_path / "straight", "replay.jsonl")
    assert [row["step"] for row in replay] == [0, 3] * (len(replay) // 2)
    shape = {"z", "support", "coefficients", "frozen", "changed", "phase", "step", "epoch"}
    assert all(shape <= row.keys() for row in replay)

    # At the last step of the last search, whose state was saved after step 4.
    last = replay[-1]["phase"]
    before = TwoStageSearch.before

    def dies(task, state, step):
        if (task.name, step) == (last, 5):
            raise Killed
        return before(task, state, step)

    with monkeypatch.context() as patched:
        patched.setattr(TwoStageSearch, "before", dies)
        with pytest.raises(Killed):
            two_stage.run(config, tmp_path / "killed")
    capsys.readouterr()
    killed = two_stage.run(config, tmp_path / "killed")
    assert f"{last}: going on from step 4 of 6" in capsys.readouterr().out
    for result in (straight, killed):
        result["seconds"] = result["search"][0]["seconds"] = 0
    assert killed == straight
    assert rows(tmp_path / "killed") == rows(tmp_path / "straight")
    assert rows(tmp_path / "killed", "replay.jsonl") == replay
