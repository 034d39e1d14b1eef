"""A run that is killed and started again ends as one that never stopped, to the bit.

Real processes, killed by SIGKILL at a random moment of the search and of the retraining.
"""

import json
import random
import signal
import subprocess
import sys
import time

import numpy as np
import orbax.checkpoint as ocp
import pytest
from places import ROOT
from tiny_space import TINY_SPACE_FLAGS

from istanas_jax.config.files import load_config

pytestmark = pytest.mark.slow

OVERRIDES = [
    *TINY_SPACE_FLAGS,
    "--config.search.cells=1",
    "--config.train.cells=1",
    "--config.search.epochs=5",
    "--config.train.epochs=4",
    "--config.search.runs=1",
    "--config.checkpoint.every_steps=7",
    "--config.search.weights.learning_rate=0.1",
    "--config.search.ista.adam.learning_rate=0.01",
]
TIMES = {"seconds", "images_per_second"}


def start(workdir, environment):
    config = str(ROOT / "configs" / "digits.py:tiny")
    command = [sys.executable, "-m", "istanas_jax", "run", "--config", config]
    command += ["--workdir", str(workdir), *OVERRIDES]
    with open(f"{workdir}.log", "a") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def kill_during(phase, workdir, environment, rng):
    """Start, wait for a checkpoint of the phase, then kill within the next moments."""
    process = start(workdir, environment)
    folder = workdir / "checkpoints" / phase
    give_up = time.monotonic() + 300
    while not any(path.name.isdigit() for path in folder.glob("*")):
        assert process.poll() is None, workdir.with_suffix(".log").read_text()
        assert time.monotonic() < give_up
        time.sleep(0.02)
    time.sleep(rng.uniform(0, 0.5))
    process.send_signal(signal.SIGKILL)
    process.wait()
    return not (workdir / f"{phase}.json").exists()


def finish(workdir, environment):
    process = start(workdir, environment)
    assert process.wait(300) == 0, workdir.with_suffix(".log").read_text()


def rows(workdir):
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in TIMES} for line in lines]


def arrays(workdir, phase):
    folder = workdir / "checkpoints" / phase
    last = max(
        (path for path in folder.iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    tree = ocp.StandardCheckpointer().restore(last / "state")
    return last.name, ocp.tree.to_flat_dict(tree)


def test_killed_and_resumed_equals_straight(tmp_path, environment):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    finish(straight, environment)
    seed = random.randrange(1000)
    rng = random.Random(seed)
    interrupted = [
        kill_during(phase, killed, environment, rng) for phase in ("search_0", "retrain_0")
    ]
    finish(killed, environment)

    log = killed.with_suffix(".log").read_text()
    assert all(interrupted), "the processes were too fast to be killed; raise the epochs"
    assert "search 0: continuing from step" in log
    assert "retrain 0: continuing from step" in log
    assert rows(killed) == rows(straight), seed
    assert (killed / "genotype.json").read_text() == (straight / "genotype.json").read_text()
    for phase in ("search_0", "retrain_0"):
        (step, ours), (last, theirs) = arrays(killed, phase), arrays(straight, phase)
        assert step == last
        assert ours.keys() == theirs.keys()
        for path in ours:
            np.testing.assert_array_equal(ours[path], theirs[path], err_msg=f"{seed} {path}")
    results = [json.loads((folder / "result.json").read_text()) for folder in (killed, straight)]
    assert results[0]["test_accuracies"] == results[1]["test_accuracies"]
    # What the report compares with, kept by the run so that nobody runs its config file again.
    started = json.loads((killed / "started.json").read_text())
    default = load_config(str(ROOT / "configs" / "digits.py"))
    assert started["defaults"] == json.loads(default.to_json_best_effort())
