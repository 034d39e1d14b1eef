"""Every search method through a whole run on tiny digits, killed and started again."""

import json
import signal

import pytest
from places import ROOT
from reads import Reads
from tiny_space import TINY_SPACE

from istanas_jax.config.bounds import not_read_by
from istanas_jax.config.files import keys, load_config
from istanas_jax.methods import METHODS
from istanas_jax.runs.interrupts import Interrupted
from istanas_jax.schedules import search, two_stage
from istanas_jax.schedules.search import Search
from istanas_jax.space.genotype import Genotype

pytestmark = pytest.mark.slow

SMALL = [
    *TINY_SPACE,
    "search.cells=1",
    "train.cells=1",
    "search.epochs=2",
    "train.epochs=1",
    "data.max_images=140",
    "data.mean=(0.3,)",
    "data.std=(0.4,)",
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


def config_of(method):
    not_read = not_read_by(method)
    small = [override for override in SMALL if override.partition("=")[0] not in not_read]
    overrides = [f"search.method={method}", *small, *OWN.get(method, [])]
    spec = str(ROOT / "configs" / "digits.py:tiny")
    return load_config(spec, [f"--config.{override}" for override in overrides])


def made_once(monkeypatch, module, name):
    """The tasks of one run serve the next ones too: they have compiled their programs."""
    original, made = getattr(module, name), {}

    def make(*args, **options):
        key = options.get("stage", 0)
        if key not in made:
            made[key] = original(*args, **options)
        return made[key]

    monkeypatch.setattr(module, name, make)


class NoTraining:
    """Instead of TrainTask, which is the same for all methods."""

    parameters = 1

    def __init__(self, *_):
        pass

    def run(self, number, session):
        return {"seed": 0, "test_accuracy": 0.5, "test_top5_accuracy": 1.0, "seconds": {"total": 0}}


def rows(workdir, name="metrics.jsonl"):
    found = [json.loads(line) for line in (workdir / name).read_text().splitlines()]
    return [row | {"seconds": 0, "images_per_second": 0} for row in found]


@pytest.mark.parametrize("method", [method for method in METHODS if method != "ista"])
def test_run_killed_and_resumed(method, tmp_path, monkeypatch, capsys):
    config = config_of(method)
    reads = Reads(config)
    made_once(monkeypatch, search, "TwoStageSearch")
    if method == "pc_darts":
        made_once(monkeypatch, two_stage, "TrainTask")
    else:
        monkeypatch.setattr(two_stage, "TrainTask", NoTraining)
    straight = two_stage.run(reads, tmp_path / "straight")
    unread = set(keys(config)) - reads.found
    assert {key for key in unread if not key.startswith("train.")} == UNREAD
    Genotype.from_dict(straight["genotype"])
    replay = rows(tmp_path / "straight", "replay.jsonl")
    assert [row["step"] for row in replay] == [0, 3] * (len(replay) // 2)
    shape = {"z", "support", "coefficients", "frozen", "changed", "phase", "step", "epoch"}
    assert all(shape <= row.keys() for row in replay)

    last = replay[-1]["phase"]
    before = Search.before

    def dies(task, state, step):
        if (task.name, step) == (last, 3):
            signal.raise_signal(signal.SIGTERM)
        return before(task, state, step)

    with monkeypatch.context() as patched:
        patched.setattr(Search, "before", dies)
        with pytest.raises(Interrupted):
            two_stage.run(config, tmp_path / "killed")
    capsys.readouterr()
    killed = two_stage.run(config, tmp_path / "killed")
    assert f"{last}: continuing from step 4 of 6" in capsys.readouterr().out
    for result in (straight, killed):
        result["seconds"] = result["search"][0]["seconds"] = 0
    assert killed == straight
    assert rows(tmp_path / "killed") == rows(tmp_path / "straight")
    assert rows(tmp_path / "killed", "replay.jsonl") == replay
