"""`inspect` tells what orbax reads and the package computes; bad input is a sentence."""

import json
import math
import os
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from inspected_runs import LAM, arch_of, by_orbax, make_runs
from inspecting import inspect, page, refused
from places import ROOT

from istanas_jax.look.inspection import files
from istanas_jax.space.genotype import Genotype
from istanas_jax.sparse_coding.active_set import kkt_residual
from istanas_jax.sparse_coding.architecture import coefficients


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("runs"))


PLACES = {  # of a path: schedule, phase, step, epoch, whether the phase is over, frozen nodes
    "one/checkpoints/search_0/2": ("one_stage", "search 0", 2, 0, False, 0),
    "one/checkpoints/search_0/4": ("one_stage", "search 0", 4, 1, False, 3),
    "one/checkpoints/search_0": ("one_stage", "search 0", 9, 3, True, 4),  # at the switch
    "one": ("one_stage", "train 0", 3, 1, False, None),
    "one/checkpoints/train_0/2": ("one_stage", "train 0", 2, 0, False, None),
    "one/trained": ("one_stage", "trained 0", 0, None, None, None),
    "two/checkpoints/search_0/8": ("two_stage", "search 0", 8, 2, False, 0),
    "two/checkpoints": ("two_stage", "retrain 0", 7, 1, False, None),
}


@pytest.mark.slow
def test_an_implicit_search_is_shown_as_recovered(runs, tmp_path, capsys):
    """It runs with z(b), which the checkpoint does not hold."""
    place = shutil.copytree(runs / "two", tmp_path / "run")
    told = "coefficient, both of the last recovery"
    assert told not in page(capsys, place / "checkpoints" / "search_0")
    settings = json.loads((place / "config.json").read_text())
    settings["search"]["ista"]["implicit"] = True
    (place / "config.json").write_text(json.dumps(settings))
    assert told in page(capsys, place / "checkpoints" / "search_0")


@pytest.mark.parametrize("place", PLACES)
def test_every_phase(runs, capsys, place):
    schedule, phase, step, epoch, over, frozen = PLACES[place]
    found = inspect(capsys, runs / place)
    what, arch = found["what"], found["architecture"]
    assert (what["schedule"], what["phase"], what["step"]) == (schedule, phase, step)
    assert (what["epoch"], what.get("finished")) == (epoch, over)
    assert set(what["versions"]) >= {"jax", "jaxlib", "orbax-checkpoint", "istanas_jax"}
    assert what["xla_flags"] == os.environ["XLA_FLAGS"]
    assert what["written"].startswith("20") and what["format"] == 1
    saved = by_orbax(runs / found["path"])
    assert sum(group["arrays"] for group in found["groups"].values()) == len(saved)
    assert sum(g["bytes"] for g in found["groups"].values()) == sum(
        x.nbytes for x in saved.values()
    )
    if frozen is None:
        final = json.loads((runs / place.split("/")[0] / "genotype.json").read_text())
        assert Genotype.from_dict(arch["genotype"]) == Genotype.from_dict(final)
        assert "nodes" not in arch
    else:
        assert sum(node["frozen"] for node in arch["nodes"]) == frozen
        genotype = Genotype.from_supports(*saved["arch.support"])
        assert Genotype.from_dict(arch["genotype"]) == genotype
    text = page(capsys, runs / place)
    assert "jaxlib " in text and all(flag in text for flag in what["xla_flags"].split())
    assert f"{schedule}, {phase}" in text and "node 1 = " in text and "▶ output" in text


def test_nodes_are_as_the_package_computes_them(runs, capsys):
    for step in (4, 9):
        path = runs / "one" / "checkpoints" / "search_0" / str(step)
        arch = arch_of(by_orbax(path))
        weights = np.asarray(coefficients(jax.tree.map(jnp.asarray, arch)))
        residual = jax.vmap(jax.vmap(lambda A, b, z: kkt_residual(A, b, jnp.float32(LAM), z)[0]))
        kkt = np.asarray(residual(arch.A, arch.b, arch.z))
        found = inspect(capsys, path)["architecture"]
        assert found["lambda"] == LAM
        for node in found["nodes"]:
            c, j = int(node["cell"] == "reduction"), node["node"]
            n = (j + 2) * 7
            np.testing.assert_array_equal(np.float32(node["b"]), arch.b[c, j])
            np.testing.assert_array_equal(np.float32(node["z"]), arch.z[c, j, :n])
            assert node["nonzero"] == np.count_nonzero(arch.z[c, j])
            assert node["support"] == arch.support[c, j].tolist()
            np.testing.assert_allclose(node["coefficients"], weights[c, j], rtol=1e-5, atol=1e-6)
            assert node["kkt"] == pytest.approx(kkt[c, j], rel=1e-3, abs=1e-4)
            assert node["frozen"] == arch.frozen[c, j]
            # b of the open node has moved on since its z was recovered; what is frozen is solved.
            assert (node["kkt"] < 0.1) == node["frozen"]


def test_frozen_since_when(runs, tmp_path, capsys):
    shutil.copytree(runs / "one", tmp_path / "one")
    path = tmp_path / "one" / "checkpoints" / "search_0" / "9"
    nodes = inspect(capsys, path)["architecture"]["nodes"]
    assert all((node["frozen_since_epoch"] in (1, 2, 3)) == node["frozen"] for node in nodes)
    (tmp_path / "one" / "replay.jsonl").unlink()
    nodes = inspect(capsys, path)["architecture"]["nodes"]
    assert [node["frozen_since_epoch"] for node in nodes] == [None] * 4

    def row(step, first):
        frozen = [[first, step > 3], [step > 3, step > 3]]
        kkt = [[step / 1024, 0], [0, 0]]
        return {"phase": "search 0", "step": step, "epoch": step // 3, "frozen": frozen, "kkt": kkt}

    rows = [row(3, False) | {"phase": "search 1"}, row(3, False), row(6, False), row(9, True)]
    start = {key: value for key, value in row(0, False).items() if key != "kkt"}
    lines = [json.dumps(x) for x in [start, *rows, row(12, True)]]
    (tmp_path / "one" / "replay.jsonl").write_text("\n".join([*lines, lines[0][:20]]))
    arch = inspect(capsys, path)["architecture"]
    assert [node["frozen_since_epoch"] for node in arch["nodes"]] == [3, 2, 2, 2]
    assert arch["recovered_at_step"] == 9 and arch["nodes"][0]["kkt_at_recovery"] == 9 / 1024
    assert "epoch 2 " in page(capsys, path) and "at step 9: 0.0088" in page(capsys, path)
    arch = inspect(capsys, path.with_name("4"))["architecture"]
    assert arch["recovered_at_step"] == 3
    (tmp_path / "one" / "replay.jsonl").write_text('{"phase": "search 0", "step": 1}')
    assert "is not a replay log" in refused(capsys, path)


def test_coefficients_of_the_static_net(runs, capsys):
    found = json.loads((runs / "one" / "search_0.json").read_text())
    arch = inspect(capsys, runs / "one")["architecture"]
    assert arch["coefficients"] == found["coefficients"] and arch["source"] == "genotype.json"
    assert f"{found['coefficients'][1][1][0]:+.3g}" in page(capsys, runs / "one")
    assert "coefficients" not in inspect(capsys, runs / "two")["architecture"]


def test_the_run_around_it(runs, tmp_path, capsys):
    run = inspect(capsys, runs / "one")["run"]
    assert run["checkpoints"] == {"search_0": [2, 4, 6, 8, 9], "train_0": [2, 3]}
    assert run["trained"] == [0] and run["finished"] and run["test_accuracy"] == 0.25
    assert "finished, test accuracy 25.00 %" in page(capsys, runs / "one")
    so_far = inspect(capsys, runs / "one" / "checkpoints" / "search_0" / "2")["epoch_so_far"]
    assert so_far == {"images": 32, "loss": 1.5, "accuracy": 0.25}
    shutil.copytree(runs / "one", tmp_path / "one")
    (tmp_path / "one" / "result.json").unlink()
    assert "not finished" in page(capsys, tmp_path / "one")
    # A step without its run: what only the run knows is left open.
    shutil.copytree(runs / "one" / "checkpoints" / "search_0" / "4", tmp_path / "x" / "4")
    found = inspect(capsys, tmp_path / "x")
    assert found["run"] is None and found["what"]["schedule"] is None
    assert found["architecture"]["nodes"][0]["kkt"] is None
    (tmp_path / "x" / "4").rename(tmp_path / "kept")
    assert inspect(capsys, tmp_path / "kept")["what"]["step"] == 4
    (tmp_path / "kept").rename(tmp_path / "x" / "4")
    assert "lambda is in the run's config.json" in page(capsys, tmp_path / "x")


def test_params(runs, capsys):
    path = runs / "one" / "checkpoints" / "search_0" / "4"
    saved = by_orbax(path)
    for pattern, matches in (
        ("weights.params.cell_0?.*0", lambda n: fnmatchcase(n, "weights.params.cell_0?.*0")),
        ("params.stem", lambda n: n.startswith("weights.params.stem.")),
        ("*", lambda n: True),
    ):
        arrays = {x["name"]: x for x in inspect(capsys, path, "--params", pattern)["arrays"]}
        assert set(arrays) == {name for name in saved if matches(name)}
        for name, x in arrays.items():
            values = saved[name].astype(np.float64)
            assert x["shape"] == list(values.shape) and x["dtype"] == saved[name].dtype.name
            assert x["norm"] == pytest.approx(math.sqrt((values**2).sum()), rel=1e-12)
            assert x["largest"] == np.abs(values).max() and x["not_finite"] == 0
    text = page(capsys, path, "--params", "params.stem")
    numbers = sum(x.size for n, x in saved.items() if n.startswith("weights.params.stem."))
    assert f" {numbers:,} " in text.splitlines()[-1]
    said = refused(capsys, path, "--params", "parms.*")
    assert "no array matches parms.*; there are" in said and "weights.params" in said


def test_optimisers(runs, capsys):
    path = runs / "one" / "checkpoints" / "search_0" / "4"
    saved, found = by_orbax(path), inspect(capsys, path)["optimisers"]
    assert found["adam"]["updates"] == found["sgd"]["updates"] == 4
    for group, field in (("sgd", "trace"), ("adam", "mu"), ("adam", "nu")):
        own = [x for n, x in saved.items() if f"{group}." in n and field in n.split(".")]
        assert found[group][field]["numbers"] == sum(x.size for x in own)
        norm = math.sqrt(sum((x.astype(np.float64) ** 2).sum() for x in own))
        assert found[group][field]["norm"] == pytest.approx(norm, rel=1e-9)


def test_only_what_is_asked_for_is_read(runs, tmp_path, capsys, monkeypatch):
    read = []
    whole = files.read_arrays

    def record(path, leaves, names):
        names = list(names)
        read.extend(names)
        return whole(path, leaves, names)

    monkeypatch.setattr(files, "read_arrays", record)
    inspect(capsys, runs / "one" / "checkpoints" / "search_0")
    assert "arch.z" in read and not [n for n in read if "params" in n or "stats" in n]
    read.clear()
    inspect(capsys, runs / "one", "--params", "params.stem.*")
    asked = {name for name in read if name.startswith("params.")}
    assert asked and all(name.startswith("params.stem.") for name in asked)
    read.clear()
    page(capsys, runs / "one", "--array", "step", "--out", tmp_path / "x.npy")
    assert read == ["step"]


def test_array(runs, tmp_path, capsys):
    path = runs / "one" / "checkpoints" / "search_0" / "4"
    saved = by_orbax(path)
    for name in ("arch.A", "arch.frozen", "weights.step", "weights.params.stem.conv0"):
        found = inspect(capsys, path, "--array", name, "--out", tmp_path / "x.npy")
        x = np.load(tmp_path / "x.npy")
        np.testing.assert_array_equal(x, saved[name])
        assert x.dtype == saved[name].dtype and found["shape"] == list(x.shape)
    assert "arch.A: float32, 2x2x7x21, norm" in page(
        capsys, path, "--array", "arch.A", "--out", tmp_path / "x.npy"
    )
    assert "did you mean arch.frozen" in refused(
        capsys, path, "--array", "arch.frozn", "--out", tmp_path / "x.npy"
    )
    assert "--out" in refused(capsys, path, "--array", "arch.A")
    os.mkfifo(tmp_path / "pipe")  # like a device: replacing it would take it from its users
    for out in (tmp_path, tmp_path / "pipe"):
        said = refused(capsys, path, "--array", "arch.A", "--out", out)
        assert f"{out} is not a file that could be replaced" in said
    assert (tmp_path / "pipe").is_fifo()


def test_diff_of_two_steps(runs, capsys):
    folder = runs / "one" / "checkpoints" / "search_0"
    a, b = by_orbax(folder / "2"), by_orbax(folder / "4")
    found = inspect(capsys, folder, "--diff", "2", "4")
    assert found["architecture"]["same_A"] and found["a"]["what"]["step"] == 2
    for node in found["architecture"]["nodes"]:
        i = int(node["cell"] == "reduction"), node["node"]
        before, after = (set(x["arch.support"][i].tolist()) for x in (a, b))
        assert len(node["removed"]) == len(before - after) == len(node["added"])
        for field in "zb":
            distance = np.linalg.norm(b[f"arch.{field}"][i] - a[f"arch.{field}"][i])
            assert node[f"{field}_distance"] == pytest.approx(distance, rel=1e-5)
        assert node["frozen"] == [False, i != (0, 0)]
    (changed,) = [node for node in found["architecture"]["nodes"] if node["added"]]
    assert (changed["cell"], changed["node"]) == ("normal", 0)
    moved = {x["name"]: x for x in found["moved"]}
    differing = {n for n in a if "params." in n and not np.array_equal(a[n], b[n])}
    assert {f"weights.{name}" for name in moved} == differing
    for name, x in moved.items():
        distance = np.linalg.norm(b[f"weights.{name}"] - a[f"weights.{name}"])
        assert x["distance"] == pytest.approx(distance, rel=1e-5)
    assert found["groups"]["arch"] == {
        "same": 1, "moved": 4, "other_shape": 0, "only_a": 0, "only_b": 0
    }  # fmt: skip
    text = page(capsys, "--diff", folder / "2", folder / "4")
    name = changed["added"][0]["operation"]
    assert "operations: 1 of 4 nodes differ" in text and f"+ {name}(" in text
    assert "adam.1.0.mu" in page(capsys, folder, "--diff", "2", "4", "--params", "adam.*")


def test_diff_with_itself_across_the_switch_and_of_other_runs(runs, capsys):
    folder = runs / "one" / "checkpoints"
    same = inspect(capsys, "--diff", folder / "search_0", folder / "search_0" / "9")
    assert same["moved"] == [] and not any(g["moved"] for g in same["groups"].values())
    switch = inspect(capsys, folder, "--diff", "search_0", "train_0/2")
    assert not any(node["added"] or node["removed"] for node in switch["architecture"]["nodes"])
    names = {x["name"] for x in switch["moved"]}
    assert "params.stem.conv0" in names and switch["groups"]["params"]["only_b"] > 0
    text = page(capsys, "--diff", runs / "one", runs / "two")
    assert "one_stage, train 0" in text and "two_stage, retrain 0" in text


WITHOUT_JAX = """
import sys
from istanas_jax.cli.main import main
for arguments in ([], ["--params", "*"], ["--diff", "search_0/2", "search_0/4"]):
    assert main(["inspect", sys.argv[1], *arguments]) == 0
assert not {"jax", "orbax", "flax", "matplotlib"} & set(sys.modules)
"""


def test_jax_is_not_even_imported(runs):
    path = runs / "one" / "checkpoints"
    command = [sys.executable, "-c", WITHOUT_JAX, str(path)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
