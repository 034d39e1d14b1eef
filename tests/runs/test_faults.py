"""Faults from outside: one sentence, exit code 2, a prompt end, and the same command continues."""

import json
import shutil
import signal
import subprocess
import sys

import pytest
from jax._src import compilation_cache
from places import HELPERS, ROOT

from istanas_jax.config.files import load_config
from istanas_jax.deploy import export
from istanas_jax.runs import program_cache
from istanas_jax.runs.folder import Workdir
from istanas_jax.storage.files import WriteError, write_whole

NAMESPACE = ["unshare", "--map-root-user", "--mount"]


@pytest.fixture(scope="module")
def ends(tmp_path_factory, environment) -> dict:
    """How a run ended on a disk that failed in several ways, one after the other."""
    disk = tmp_path_factory.mktemp("disk")
    try:
        may = subprocess.run(
            [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", disk], capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("unshare is not installed: no disk to break")
    if may.returncode:
        pytest.skip("mounting a small disk is not permitted here")
    scenario = [sys.executable, HELPERS / "small_disk.py", disk]
    done = subprocess.run([*NAMESPACE, *scenario], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (
            "read-only",
            "retrain_0: Read-only file system; what was saved before is kept",
        ),
        ("full", "No space left on device"),
        ("deleted", "was deleted"),
    ],
)
def test_the_disk(ends, fault, sentence):
    end = ends[fault]
    lines = [line for line in end["err"].splitlines() if not line.startswith("retrain 0 ")]
    assert len(lines) == 1, end["err"]
    assert lines[0].startswith("istanas: ")
    assert sentence in lines[0]
    assert end["code"] == 2
    # A step and a save, on a busy machine; a thread of orbax's would keep the process for 1200 s.
    assert end["seconds"] < 240


@pytest.mark.slow
def test_ctrl_c_twice(ends):
    end = ends["stopped twice"]
    lines = [line for line in end["err"].splitlines() if not line.startswith("retrain 0 ")]
    assert len(lines) == 1, end["err"]  # that it stopped, or that it has even saved
    assert end["code"] == 128 + signal.SIGINT
    assert end["seconds"] < 240


@pytest.mark.slow
def test_it_goes_on_once_the_disk_is_mended(ends):
    for fault in ("read-only", "full", "deleted"):
        assert "continuing from step" in ends[fault]["out"]
    # A folder that was deleted is not made again, but for the save that was under way.
    assert [name for name in ends["left"] if not name.startswith("run/checkpoints")] in (
        [],
        ["run"],
    )


WRITER = """
import sys, time
from istanas_jax.storage import files

with files._locked(sys.argv[1]):
    print("writing", flush=True)
    time.sleep(600)
"""


def test_files_of_killed_writers_are_removed_and_no_others(tmp_path):
    config = load_config(str(ROOT / "configs" / "digits.py:tiny"), [])
    run = tmp_path / "run"
    with Workdir.open(run, config).work(config):
        pass
    (run / "cells").mkdir()
    half = [run / ".report.html.123456", run / "cells" / ".normal.svg.123456"]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, file], stdout=subprocess.PIPE, cwd=ROOT)
        for file in half
    ]
    try:
        for writer in writers:
            assert writer.stdout.readline() == b"writing\n"
        with Workdir.open(run, config).work(config):
            assert all(file.exists() for file in half)
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    with Workdir.open(run, config).work(config):
        assert not any(file.exists() for file in half)


def test_a_page_that_is_written_again_leaves_nothing_of_the_first_try(tmp_path):
    (tmp_path / ".index.html.123456").write_bytes(b"<html")
    (tmp_path / ".other.html.123456").write_bytes(b"<html")
    write_whole(tmp_path / "index.html", b"<html></html>")
    assert {path.name for path in tmp_path.iterdir()} == {"index.html", ".other.html.123456"}


def test_an_export_that_was_killed_can_be_repeated(tmp_path):
    """At any of its first steps: before it has said whose the folder is, or after."""
    (tmp_path / ".network.json.123456").write_text('{"for')
    export._claim(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"network.json"}
    (tmp_path / "weights.safetensors").write_bytes(b"of an earlier export")
    (tmp_path / ".model.stablehlo.tmp").write_bytes(b"half")
    export._claim(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"network.json"}


def test_a_program_half_written_is_compiled_again(tmp_path):
    cache, _ = program_cache.files(str(tmp_path))
    entry = compilation_cache.compress_executable(bytes(range(256)) * 100)
    cache.put("step", entry)
    assert cache.get("step") == entry
    (file,) = tmp_path.iterdir()
    file.write_bytes(entry[: len(entry) // 2])  # of a process that was killed
    assert cache.get("step") is None
    cache.put("step", entry)
    assert cache.get("step") == entry


def test_a_folder_that_was_replaced_is_left_alone(tmp_path):
    config = load_config(str(ROOT / "configs" / "digits.py:tiny"), [])
    first = Workdir.open(tmp_path / "run", config)
    with pytest.raises(WriteError, match="run was deleted or replaced"), first.work(config):
        shutil.rmtree(tmp_path / "run")
        with Workdir.open(tmp_path / "run", config).work(config):
            pass
        first.write("result.json", {})
    assert {path.name for path in (tmp_path / "run").iterdir()} == {".lock", "config.json"}
