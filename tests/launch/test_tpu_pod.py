"""tpu_pod.py against a fake gcloud, whose hosts are folders where commands really run."""

import re
import shlex
import signal
import tempfile
from pathlib import Path

import pytest
from tpu_cloud import JOB, POD, SLICE

STARTED = ["tpu-vm scp", "tpu-vm ssh", "tpu-vm ssh install", "tpu-vm ssh start"]
CREATED = ["queued-resources create", *STARTED]


def test_dry_run_prints_what_the_real_run_does_and_does_nothing(cloud):
    options = ["--spot", "--delete", "--fetch", "my runs", "--project", "some-project"]
    out, err = cloud.run("--dry-run", *POD, *options, "--", *JOB)
    assert (err, cloud.calls()) == ("", [])
    commands = [shlex.split(line) for line in out.splitlines()]
    assert [command[0] for command in commands] == ["gcloud"] * 5 + ["git"] + ["gcloud"] * 9
    create = commands[2]
    assert create[:6] == ["gcloud", "compute", "tpus", "queued-resources", "create", "istanas"]
    assert {
        "--accelerator-type=v5litepod-32", "--runtime-version=v2-alpha-tpuv5-lite", "--spot",
        "--zone=us-west4-a", "--project=some-project", "--node-id=istanas",
    } < set(create)  # fmt: skip
    (start,) = (command[-1] for command in commands if " start " in command[-1])
    assert shlex.split(start)[4:] == JOB
    assert commands[-3][:3] == ["gcloud", "storage", "rsync"]
    assert commands[-3][-2:] == ["gs://bucket/run", "my runs"]
    assert "delete" in commands[-1]
    assert not (cloud.checkout / "my runs").exists()
    # All of them, in this order, are what really happens.
    cloud.run(*POD, *options, "--", *JOB)
    real = [without_folder(["gcloud", *call]) for call in cloud.calls()]
    for command in map(without_folder, commands):
        if command[0] == "gcloud" and "output" not in command[-1]:
            assert command in real
            real = real[real.index(command) :]


def test_further_flags_and_variables_reach_the_slice_and_the_job(cloud):
    flags = ["--create-flag=--reserved", "--create-flag=--metadata=a=b c"]
    variables = ["--env", "XLA_FLAGS=--one --two", "--env", "GREETING=it's me"]
    out, _ = cloud.run("--dry-run", *POD, *flags, *variables, "--", *JOB)
    commands = [shlex.split(line) for line in out.splitlines()]
    (create,) = (command for command in commands if "create" in command)
    assert {"--reserved", "--metadata=a=b c"} < set(create)
    (start,) = (shlex.split(command[-1]) for command in commands if " start " in command[-1])
    assert start[0] == "--command=env"
    assert start[1:3] == ["XLA_FLAGS=--one --two", "GREETING=it's me"]
    assert start[-len(JOB) :] == JOB
    cloud.run(*POD, *flags, *variables, "--", *JOB)
    (created,) = (call for call in cloud.calls() if "create" in call)
    assert {"--reserved", "--metadata=a=b c"} < set(created)


def without_folder(command: list[str]) -> list[str]:
    """The archive's folder is another one every time."""
    return [re.sub(r"^/.*/(istanas_pod\.tar\.gz)$", r"\1", word) for word in command]


def test_the_archive_is_where_nobody_else_can_write(cloud):
    """With a name that others know they could put a link there, or an archive of their own."""
    cloud.run(*POD, "--delete", "--", *JOB)
    scps = [call for call in cloud.calls() if "scp" in call]
    folders = {Path(word).parent for call in scps for word in call if word.startswith("/")}
    assert len(scps) == len(folders) > 0
    assert Path(tempfile.gettempdir()) not in folders
    assert not any(folder.exists() for folder in folders)


@pytest.mark.slow
def test_a_whole_job_with_a_preemption(cloud):
    cloud.set(preempt_after=[4], steps=8)
    out, err = cloud.run(*POD, "--spot", "--delete", "--fetch", "fetched", "--", *JOB)
    assert err == ""
    assert cloud.verbs() == [
        *CREATED, "queued-resources delete", *CREATED, "storage rsync", "queued-resources delete",
    ]  # fmt: skip
    words = "".join(f" <{word}>" for word in JOB)
    assert f"host 0 from step 0:{words}\n" in out
    assert "the slice is PREEMPTED; starting again (1)" in out
    resumed = out[out.index("starting again") :]
    first = int(resumed.partition("host 0 from step ")[2].partition(":")[0])
    assert first > 0
    steps = [int(line.split()[1]) for line in resumed.splitlines() if line.startswith("step ")]
    assert steps == list(range(first + 1, 9))
    assert "host 1" not in out
    assert (cloud.checkout / "fetched" / "result.json").exists()
    installed = (cloud.folder / "pip.log").read_text().splitlines()
    assert len(installed) == 8  # two commands on two hosts, twice
    assert installed[0].endswith("-r requirements.txt -r requirements-tpu.txt")
    assert not list(cloud.folder.glob("host-*"))


@pytest.mark.slow
def test_a_job_that_fails(cloud):
    cloud.set(exit=[7], steps=1)
    out, _ = cloud.run(*POD, "--delete", "--", *JOB, code=7)
    assert "step 1" in out
    assert cloud.verbs() == [*CREATED, "tpu-vm ssh failure", "queued-resources delete"]


def test_a_failure_before_the_job(cloud):
    cloud.set(failing=["install"])
    _, err = cloud.run(*POD, "--delete", "--fetch", "fetched", "--", *JOB, code=1)
    assert "ended with code 1: gcloud compute tpus tpu-vm ssh" in err
    assert err.endswith("ERROR: install failed\n")
    assert cloud.verbs()[-1] == "queued-resources delete"
    assert not (cloud.checkout / "fetched").exists()


def test_too_many_preemptions(cloud):
    cloud.set(preempt_after=[0, 0, 0], steps=99)
    _, err = cloud.run(*POD, "--spot", "--restarts", "1", "--", *JOB, code=1)
    assert "the slice is PREEMPTED, and --restarts allows no more" in err


def test_a_failure_that_comes_of_a_preemption(cloud):
    cloud.set(exit=[1, 0], steps=1, preempt_after=[6])
    out, _ = cloud.run(*POD, "--spot", "--", *JOB)
    assert "the slice is PREEMPTED; starting again (1)" in out
    assert "goes on costing; `python launch/tpu/tpu_pod.py --name istanas --zone us-west4-a" in out
    assert cloud.verbs() == [*CREATED, "queued-resources delete", *CREATED]


@pytest.mark.slow
def test_a_host_that_was_started_anew(cloud):
    cloud.set(steps=12)
    with cloud.start(*POD, "--", *JOB) as process:
        process.read_until("step 1\n")
        (cloud.folder / "host-1" / ".istanas_pod" / "job" / "boot").write_text("an earlier one")
        out = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert "a host was started anew; starting again (1)" in out
    assert "step 12" in out
    assert cloud.verbs() == [*CREATED, "tpu-vm ssh stop", *STARTED]
    assert len((cloud.folder / "pip.log").read_text().splitlines()) == 4  # not installed again


def test_a_lost_connection_deletes_nothing(cloud):
    cloud.set(failing=[" status"])
    _, err = cloud.run(*POD, "--delete", "--", *JOB, code=1)
    assert "no connection to istanas" in err
    assert "istanas is left as it is; the same command continues from here" in err
    assert cloud.verbs() == ["queued-resources create"]


@pytest.mark.slow
def test_ctrl_c_leaves_the_job_which_the_same_command_follows_again(cloud):
    cloud.set(steps=15)
    process = cloud.start(*POD, "--delete", "--", *JOB)
    process.read_until("step 1\n")
    process.send_signal(signal.SIGINT)
    err = process.communicate()[1]
    assert process.returncode == 130
    assert "istanas and its job go on; the same command follows it again" in err
    again = "python launch/tpu/tpu_pod.py --name istanas --zone us-west4-a"
    assert f"`{again} --stop` ends the job" in err
    assert "Traceback" not in err
    _, err = cloud.run(*POD, "--", *JOB[:-1], code=1)
    assert "another job is running on istanas: end it with --stop first" in err
    out, _ = cloud.run(*POD, "--", *JOB)
    assert "the job is running already" in out
    assert "step 15" in out
    assert cloud.verbs() == [*CREATED, "tpu-vm ssh size"]


@pytest.mark.slow
def test_stop_and_delete_from_elsewhere(cloud):
    cloud.set(steps=1000)
    with cloud.start(*POD, "--", *JOB) as process:
        process.read_until("step 1\n")
        out, _ = cloud.run(*SLICE, "--stop", "--delete")
        assert "istanas: no job is running" in out
        err = process.communicate(timeout=60)[1]
    assert process.returncode in (1, 143)  # by what it saw first
    assert process.returncode == 143 or "was deleted by somebody else" in err
    assert cloud.verbs().count("queued-resources create") == 1
    assert cloud.verbs().count("queued-resources delete") == 1


def test_a_request_that_waits_can_be_left_and_deleted(cloud):
    cloud.set(queued=True)
    with cloud.start(*POD, "--", *JOB) as process:
        process.read_until("WAITING_FOR_RESOURCES")
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "istanas is left as it is; the same command continues from here" in err
    cloud.run(*SLICE, "--delete")
    assert cloud.verbs() == ["queued-resources create", "queued-resources delete"]
    out, _ = cloud.run(*SLICE, "--delete")
    assert out == "istanas is not there\n"
    assert "no job is running" in cloud.run(*SLICE, "--stop", code=1)[1]


def test_a_request_that_fails(cloud):
    cloud.set(queued=True, request="FAILED")
    _, err = cloud.run(*POD, "--delete", "--", *JOB, code=1)
    assert "istanas could not be created: no quota" in err
    assert cloud.verbs() == ["queued-resources create", "queued-resources delete"]


def test_a_slice_of_somebody_else_is_used_and_never_deleted(cloud):
    (cloud.folder / "slice.json").write_text('{"name": "istanas", "labels": {}, "looks": 5}')
    out, err = cloud.run(*POD, "--delete", "--", *JOB, code=1)
    assert "was not made by this program, and is not deleted" in out
    assert "step 3" in out
    assert "was not made by this program: delete it yourself" in err
    assert cloud.verbs() == STARTED
    (cloud.folder / "slice.json").write_text(
        '{"name": "istanas", "labels": {}, "looks": 5, "state": "PREEMPTED"}'
    )
    _, err = cloud.run(*POD, "--", *JOB, code=1)
    assert "istanas is PREEMPTED and was not made by this program" in err
    assert cloud.verbs() == STARTED
