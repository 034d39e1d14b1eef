"""`inspect` on what is damaged, foreign, in a bucket or nothing at all."""

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gcs_server import Bucket
from inspecting import inspect, page, refused
from places import ROOT

from istanas_jax.space.spaces import DARTS
from istanas_jax.sparse_coding.architecture import Coding, init_architecture
from istanas_jax.storage.checkpoint_files import sign
from istanas_jax.storage.checkpoints import Checkpoints


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run's folder as far as `inspect` looks at it."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    arch = init_architecture(
        jax.random.key(0), Coding(space=replace(DARTS, nodes=2)), sigma=1e-3
    ).arch
    state = {"arch": arch, "weights": {"params": {"stem": jnp.arange(6.0)}}}
    about = {"phase": "search 0", "epoch": 1, "notes": {}, "finished": False}
    with Checkpoints(folder / "checkpoints" / "search_0", keep=1, every_minutes=60) as saved:
        saved.save(4, state, about=about)
    return folder


def test_bfloat16_and_nan(tmp_path, capsys):
    state = {
        "half": jnp.arange(5, dtype=jnp.bfloat16) / 3,
        "bad": jnp.array([1.0, jnp.nan]),
    }
    with Checkpoints(tmp_path / "c", keep=1, every_minutes=60) as saved:
        saved.save(1, state, about={"loss": math.inf})
    inspect(capsys, tmp_path / "c", "--array", "half", "--out", tmp_path / "x.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.asarray(state["half"], "f4"))
    found = inspect(capsys, tmp_path / "c", "--params", "*")
    bad = next(x for x in found["arrays"] if x["name"] == "bad")
    assert bad["norm"] is None and bad["not_finite"] == 1 and found["architecture"] is None
    assert "not finite: bad" in page(capsys, tmp_path / "c", "--params", "*")


def edit(path, **changes) -> None:
    """Another "about", rightly signed."""
    file = path / "about" / "metadata"
    about = {k: v for k, v in json.loads(file.read_text()).items() if k != "crc32"}
    file.write_text(json.dumps(sign(about | changes)))


def halve(*files) -> None:
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


BAD = {  # what is done to a step folder: what is said
    "newer": (lambda p: edit(p, format=7), "has format 7, of a newer istanas_jax"),
    "older": (lambda p: edit(p, format=0), "has format 0, of an older istanas_jax"),
    "foreign": (lambda p: edit(p, format=None), "is no checkpoint of istanas_jax"),
    "cut about": (lambda p: halve(p / "about" / "metadata"), "is damaged: JSONDecodeError"),
    "changed about": (
        lambda p: (p / "about" / "metadata").write_text(
            (p / "about" / "metadata").read_text().replace('"epoch": 1', '"epoch": 2')
        ),
        "the checksum of about differs",
    ),
    "a list": (lambda p: (p / "about" / "metadata").write_text("[1]"), "is damaged"),
    "no about": (lambda p: shutil.rmtree(p / "about"), "about is missing"),
    "cut arrays": (
        lambda p: halve(*(x for x in (p / "state").rglob("d/*") if x.is_file())),
        "is damaged: ",
    ),
    "no arrays": (lambda p: shutil.rmtree(p / "state"), "is damaged: "),
    "unfinished": (
        lambda p: p.rename(p.with_name("4.orbax-checkpoint-tmp-1")),
        "was still being written",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_checkpoints_are_a_sentence(run, tmp_path, capsys, name):
    damage, sentence = BAD[name]
    step = tmp_path / "search_0" / "4"
    shutil.copytree(run / "checkpoints" / "search_0" / "4", step)
    damage(step)
    (step,) = (tmp_path / "search_0").iterdir()
    said = refused(capsys, step)
    assert sentence in said and str(step) in said and len(said) < 500


@pytest.mark.parametrize("name", ["cut about", "no about", "cut arrays"])
def test_the_newest_that_is_whole_is_shown(run, tmp_path, capsys, name):
    """As a run does that goes on; a step that is named is shown, or it is an error."""
    steps = tmp_path / "checkpoints" / "search_0"
    for step in ("4", "8"):
        shutil.copytree(run / "checkpoints" / "search_0" / "4", steps / step)
    BAD[name][0](steps / "8")
    found = inspect(capsys, tmp_path)
    assert found["path"] == str(steps / "4")
    (damaged,) = found["damaged"]
    assert str(steps / "8") in damaged and BAD[name][1] in damaged
    assert "this is the newest checkpoint that is whole" in page(capsys, tmp_path)
    assert str(steps / "8") in refused(capsys, steps / "8")
    BAD[name][0](steps / "4")
    assert str(steps / "8") in refused(capsys, tmp_path)  # none is whole


def test_folders_that_are_none(run, tmp_path, capsys):
    assert "is empty" in refused(capsys, tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    assert f"{tmp_path} holds no checkpoint" in refused(capsys, tmp_path)
    assert "is a file" in refused(capsys, tmp_path / "notes.txt")
    assert "does not exist" in refused(capsys, tmp_path / "nowhere")
    (tmp_path / "run" / "checkpoints" / "search_0").mkdir(parents=True)
    for path in ("run", "run/checkpoints", "run/checkpoints/search_0"):
        assert "has not saved a checkpoint yet" in refused(capsys, tmp_path / path)
    assert "give the PATH" in refused(capsys)


def test_a_search_in_stages(run, tmp_path, capsys):
    """The newest stage of the newest search, as P-DARTS names them."""
    saved = run / "checkpoints" / "search_0"
    folder = tmp_path / "checkpoints"
    for name in ("search_0_stage_1", "search_0_stage_2", "search_0_stage_10", "search_1_stage_1"):
        shutil.copytree(saved, folder / name)
    found = inspect(capsys, tmp_path)
    assert found["path"].endswith("checkpoints/search_1_stage_1/4")
    assert list(found["run"]["checkpoints"]) == [
        "search_0_stage_1", "search_0_stage_2", "search_0_stage_10", "search_1_stage_1"
    ]  # fmt: skip


def test_in_a_bucket(run, capsys):
    """With gcsfs and tensorstore as in a real one; requirements-tpu.txt brings gcsfs."""
    pytest.importorskip("gcsfs")
    here = inspect(capsys, run)
    unfinished = "checkpoints/search_0/9"
    with Bucket() as server:
        for file in (x for x in run.rglob("*") if x.is_file()):
            server.put(f"one/{file.relative_to(run)}", file.read_bytes())
        server.put(f"one/{unfinished}/about/metadata", b"{}")
        for path in ("", "/checkpoints/search_0", "/checkpoints/search_0/4", f"/{unfinished}"):
            command = [sys.executable, "-m", "istanas_jax", "inspect", f"gs://bucket/one{path}"]
            done = subprocess.run(
                [*command, "--json"], cwd=ROOT, text=True, capture_output=True,
                env=os.environ | server.environment,
            )  # fmt: skip
            if unfinished in path:
                assert done.returncode == 2 and "was still being written" in done.stderr
            else:
                assert done.returncode == 0, done.stderr
                found = json.loads(done.stdout)
                assert found["path"] == "gs://bucket/one/checkpoints/search_0/4"
                assert found["architecture"] == here["architecture"]
