"""`bench torture` in small: runs that are killed, checkpoints that are damaged, nothing is lost."""

import json
import random
import shutil

import jax.numpy as jnp
import pytest

from istanas_jax.bench import damage
from istanas_jax.bench.same import differences
from istanas_jax.cli import main
from istanas_jax.storage.checkpoints import Checkpoints


@pytest.mark.slow
def test_kills(capsys, environment, monkeypatch):
    """Kill one-stage runs with any seed; test_kill_and_resume kills two-stage ones."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    seed = random.randrange(10_000)
    options = ["--schedule", "one_stage", "--kills", "2", "--damages", "0", "--seed", str(seed)]
    code = main.main(["bench", "torture", *options])
    said = capsys.readouterr().out
    assert f"seed {seed}" in said
    assert code == 0, said
    assert "lost: nothing" in said


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Three checkpoints with arrays of several files."""
    folder = tmp_path_factory.mktemp("run") / "checkpoints" / "search_0"
    with Checkpoints(folder, keep=3, every_minutes=60) as saved:
        for step in (7, 14, 21):
            state = {"w": jnp.arange(4000.0) + step, "b": jnp.full((2, 2, 7), step, jnp.bfloat16)}
            saved.save(step, state, about={"epoch": step})
    return folder


@pytest.mark.slow
def test_damages(steps):
    seed = random.randrange(10_000)
    rows = damage.run(steps, 200, random.Random(seed), print)
    assert sum(row["times"] for row in rows) == 200
    assert [line for row in rows for line in row["lost"]] == [], seed
    assert sum(row["older"] for row in rows) > 50  # most damages are noticed
    assert {path.name for path in steps.iterdir()} == {"7", "14", "21"}


def test_notes_of_orbax_that_are_garbled(steps, tmp_path):
    """orbax would open none of the steps; the newest is read, and nothing else is touched."""
    folder = tmp_path / "search_0"
    shutil.copytree(steps, folder)
    for step, content in (("14", '{"a": 1, "custom_metadata": {"b": 1}}'), ("21", "[1, 2]")):
        (folder / step / "_CHECKPOINT_METADATA").write_text(content)
    with Checkpoints(folder, keep=3, every_minutes=60) as saved:
        restored = saved.restore(damage._good(steps)[21])
    assert restored.step == 21
    assert (folder / "7" / "_CHECKPOINT_METADATA").exists()


def test_a_loss_is_told(steps, monkeypatch):
    """Weights that are not those that were saved."""
    good = damage._good(steps)
    good[14]["w"] = good[14]["w"] + 1
    monkeypatch.setattr(damage, "_good", lambda _: good)
    rows = damage.run(steps, 30, random.Random(0), print)
    lost = [line for row in rows for line in row["lost"]]
    assert lost and all(line.endswith("step 14 is not what was saved") for line in lost)


def test_differences_are_told(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    (one / "checkpoints").mkdir(parents=True)
    row = {"phase": "search 0", "step": 1, "loss": 0.5, "seconds": {"total": 3.0}}
    (one / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (one / "result.json").write_text(json.dumps({"test_accuracy": 0.9, "seconds": 1}))
    for folder, value in (("checkpoints/search_0", 1.0), ("trained", 2.0)):
        with Checkpoints(one / folder, keep=1, every_minutes=60) as saved:
            saved.save(0, {"w": jnp.full(3, value)}, about={})
    shutil.copytree(one, other)
    (other / "metrics.jsonl").write_text(json.dumps(row | {"seconds": {}}) + "\n")
    assert differences(one, other) == []
    (other / "metrics.jsonl").write_text(json.dumps(row | {"loss": 0.25}) + "\n")
    (other / "result.json").unlink()
    with Checkpoints(other / "trained", keep=1, every_minutes=60) as saved:
        saved.save(0, {"w": jnp.full(3, 2.5)}, about={})
    assert len(differences(one, other)) == 3
