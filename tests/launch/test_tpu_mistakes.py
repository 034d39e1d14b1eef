"""tpu_pod.py where something is wrong or missing: said at once, before any machine is asked for."""

import shutil
import subprocess
import sys
import time

import pytest
from places import ROOT
from tpu_cloud import JOB, POD, SLICE


@pytest.mark.parametrize(
    ("arguments", "sentences"),
    [
        ([], ["--name is missing", "--zone is missing", "there is nothing to do"]),
        (
            ["--name", "A_b", "--zone", "mars", "--accelerator", "v9-8", "--project", "X",
             "--every", "0", "--restarts", "-1", "--network", "a b", "--", "run"],
            ["--name 'A_b' is not", "--zone 'mars' is not", "--project 'X' is not",
             "--network 'a b' is not", "--every 0.0 is not", "--restarts -1",
             "--accelerator 'v9-8' is not one of v2, v3, v4, v5litepod, v5p, v6e",
             "no --workdir", "no --config"],
        ),
        ([*SLICE, "--", "run"], ["--accelerator is missing", "no --workdir", "no --config"]),
        ([*SLICE, "--accelerator", "v5litepod-33", "--", *JOB], ["one of 1, 4, 8, 16, 32"]),
        ([*SLICE, "--accelerator", "v4-12", "--", *JOB], ["multiples of 8 up to 8192"]),
        ([*POD, "--", *JOB, "--workdir", "runs/x"], ["must be gs://BUCKET/PATH: 8 hosts share it"]),
        ([*POD, "--", *JOB, "--workdir=gs://bucket"], ["is not gs://BUCKET/PATH"]),
        (
            [*SLICE, "--accelerator", "v6e-8", "--spot", "--", *JOB, "--workdir", "x"],
            ["a preemption would lose it"],
        ),
        ([*POD, "--", *JOB, "--config", "configs/none.py"], ["there is no configs/none.py"]),
        ([*POD, "--", *JOB, "--config", "configs/untracked.py"], ["is not tracked by git"]),
        ([*POD, "--", *JOB, "--config", "/configs/digits.py"], ["not a path inside the checkout"]),
        ([*POD, "--", "--help"], ["the job begins with '--help'"]),
        ([*SLICE, "--stop", "--fetch", "x"], ["--fetch needs a job"]),
        ([*POD, "--stop", "--", *JOB], ["--stop starts nothing"]),
        (
            [*POD, "--create-flag", "reserved", "--create-flag=--labels=a=b", "--env", "X", "--",
             *JOB],
            ["--create-flag 'reserved' is not a flag", "'--labels=a=b' is given by this program",
             "--env 'X' is not NAME=VALUE"],
        ),
    ],
)  # fmt: skip
def test_everything_wrong_is_said_at_once(cloud, arguments, sentences):
    out, err = cloud.run(*arguments, code=2)
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == len(sentences), err
    for sentence in sentences:
        assert any(sentence in line for line in lines), (sentence, err)
    assert all(line.startswith("tpu_pod: ") and line.endswith(".") for line in lines)
    assert cloud.calls() == []


def test_without_gcloud(cloud):
    (cloud.bin / "gcloud").unlink()
    (cloud.bin / "git").symlink_to(shutil.which("git"))
    done = subprocess.run(
        [sys.executable, "launch/tpu/tpu_pod.py", *POD, "--", *JOB], cwd=cloud.checkout,
        env=cloud.environment | {"PATH": str(cloud.bin)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        "tpu_pod: gcloud is not installed: see cloud.google.com/sdk/docs/install.\n"
    )


def test_gcloud_that_cannot_is_not_asked_again_and_again(cloud):
    cloud.set(failing=["describe"])
    begin = time.monotonic()
    _, err = cloud.run(*POD, "--", *JOB, code=1)
    assert "ERROR: describe failed" in err
    assert len(cloud.calls()) == 1
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize(
    ("accelerator", "hosts"),
    [("v2-8", 1), ("v3-32", 4), ("v4-16", 2), ("v5litepod-8", 1), ("v5litepod-256", 64),
     ("v5p-8", 1), ("v5p-128", 16), ("v6e-1", 1), ("v6e-16", 4)],
)  # fmt: skip
def test_hosts(monkeypatch, accelerator, hosts):
    monkeypatch.syspath_prepend(str(ROOT / "launch" / "tpu"))
    import tpu_arguments

    assert tpu_arguments.parse([*SLICE, "--accelerator", accelerator]).hosts == hosts


def test_a_host_whose_python_is_too_old(cloud):
    """uv brings a new one."""
    (old := cloud.bin / "python3").write_text(
        f"""#!/bin/sh
        case "$*" in
          "-m pip install --quiet --user uv=="*) ;;
          "-m site --user-base") echo {cloud.folder} ;;
          *) exit 1 ;;
        esac"""
    )
    (cloud.folder / "bin").mkdir()
    (uv := cloud.folder / "bin" / "uv").write_text(
        f"""#!/bin/sh
        echo "$@" >>{cloud.folder}/uv.log
        [ "$2" = install ] || echo {cloud.folder}/python"""
    )
    for version in range(11, 15):
        (cloud.bin / f"python3.{version}").symlink_to(old)
    for path in (old, uv):
        path.chmod(0o755)
    subprocess.run(
        ["bash", "launch/tpu/tpu_worker.sh", "install"], cwd=cloud.checkout, env=cloud.environment,
        check=True,
    )  # fmt: skip
    assert (cloud.folder / "uv.log").read_text().startswith("python install --quiet 3.11\npython f")
    assert (cloud.checkout / ".venv-tpu" / "built-from").exists()
