"""Several real processes on the loopback work as one: equality, a lost one, one that disagrees."""

import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from places import HELPERS, ROOT
from tiny_runs import PAPER
from tiny_space import TINY_SPACE_FLAGS

from istanas_jax.devices import hosts

OVERRIDES = [
    *(f"--config.{override}" for override in PAPER),
    "--config.search.ista.adam.learning_rate=0.02",  # so that supports change within ten steps
    *TINY_SPACE_FLAGS,
    "--config.search.ista.sigma=0.1",
    "--config.search.cells=1",
    "--config.search.batch=32",
    "--config.search.sync_norms=True",
    "--config.data.max_images=400",
    "--config.search.ista.recovery.every=3",
    "--config.search.epochs=10000",  # of 5 steps
    "--config.checkpoint.every_steps=5",
    "--config.checkpoint.keep_last=10000",
]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def started(
    workdir, environment, *, processes=1, devices=1, slurm=False, program=("-m", "istanas_jax")
):
    """The processes of a search; what they say goes to WORKDIR-PROCESS.log."""
    port = free_port()
    running = []
    for number in range(processes):
        config = str(ROOT / "configs" / "digits.py:tiny")
        command = [sys.executable, *program, "search", "--config", config]
        command += ["--workdir", str(workdir), *OVERRIDES]
        own = environment | {"JAX_NUM_CPU_DEVICES": str(devices)}
        if slurm:
            own |= {
                "JAX_COORDINATOR_PORT": str(port),
                "SLURM_JOB_ID": "1",
                "SLURM_STEP_NODELIST": "localhost",
                "SLURM_STEP_NUM_NODES": "1",
                "SLURM_STEP_NUM_TASKS": str(processes),
                "SLURM_NTASKS": str(processes),
                "SLURM_PROCID": str(number),
                "SLURM_LOCALID": str(number),
            }
        elif processes > 1:
            command += ["--coordinator", f"127.0.0.1:{port}"]
            command += ["--processes", str(processes), "--process", str(number)]
        with open(log(workdir, number), "a") as file:
            running.append(subprocess.Popen(command, env=own, stdout=file, stderr=file))
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def log(workdir, number: int) -> str:
    return f"{workdir}-{number}.log"


def said(workdir, number: int = 0) -> str:
    with open(log(workdir, number)) as file:
        return file.read()


def wait_for_step(workdir, step: int, running) -> None:
    """Until a checkpoint of this or a later step is there."""
    folder = workdir / "checkpoints" / "search_0"
    give_up = time.monotonic() + 900  # a busy machine is no hang
    while not any(p.name.isdigit() and int(p.name) >= step for p in folder.glob("*")):
        assert all(p.poll() is None for p in running), said(workdir) + said(workdir, 1)
        assert time.monotonic() < give_up
        time.sleep(0.05)


def last_step(workdir) -> int:
    folder = workdir / "checkpoints" / "search_0"
    return max(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def metrics_lines(workdir) -> list[str]:
    """The lines of the first two epochs."""
    return (workdir / "metrics.jsonl").read_text().splitlines()[:2]


def after_ten_steps(workdir):
    """Metrics of both epochs, architecture and weights."""
    losses = ("loss", "b_loss", "heldout_loss")
    metrics = [[json.loads(line)[name] for name in losses] for line in metrics_lines(workdir)]
    state = read_arrays(workdir / "checkpoints" / "search_0" / "10" / "state")
    return metrics, state["arch"], ocp.tree.to_flat_dict(state["weights"]["params"])


def read_arrays(path):
    """Read with orbax, as numpy arrays, since the devices that wrote them are not here."""
    checkpointer = ocp.PyTreeCheckpointer()
    restore_args = jax.tree.map(
        lambda _: ocp.RestoreArgs(restore_type=np.ndarray),
        checkpointer.metadata(path).item_metadata.tree,
    )
    return checkpointer.restore(path, args=ocp.args.PyTreeRestore(restore_args=restore_args))


def assert_close(ours, theirs):
    """Sums in another order differ in float32's last bits, 6e-8. Adam divides a gradient by its
    own size: where it is nearly 0, its rounding decides about a part of a step of 5e-3."""
    (metrics, arch, weights), (metrics_, arch_, weights_) = ours, theirs
    np.testing.assert_allclose(metrics, metrics_, rtol=1e-4)
    np.testing.assert_allclose(arch["b"], arch_["b"], atol=1e-4)
    np.testing.assert_array_equal(arch["support"], arch_["support"])
    for path in weights_:
        np.testing.assert_allclose(weights[path], weights_[path], atol=1e-4, err_msg=str(path))


@pytest.mark.slow
def test_two_processes_are_four_devices_are_one(tmp_path, environment):
    outcomes = {}
    for processes, devices in ((2, 2), (1, 4), (1, 1)):
        workdir = tmp_path / f"{processes}x{devices}"
        with started(workdir, environment, processes=processes, devices=devices) as running:
            wait_for_step(workdir, 10, running)
        outcomes[processes, devices] = after_ten_steps(workdir)
    assert_close(outcomes[2, 2], outcomes[1, 4])
    assert_close(outcomes[1, 4], outcomes[1, 1])
    changed = [json.loads(line)["changed"] for line in metrics_lines(tmp_path / "1x1")]
    assert sum(changed), "no support changed, so nothing is shown about recovery"
    # Only the first talks.
    assert "search 0: compiled in" in said(tmp_path / "2x2")
    assert "search" not in said(tmp_path / "2x2", 1)


@pytest.mark.slow
def test_lost_host_stop_and_restore_elsewhere(tmp_path, environment):
    workdir = tmp_path / "run"
    two = {"processes": 2, "slurm": True}
    with started(workdir, environment, **two) as running:
        wait_for_step(workdir, 5, running)
        running[1].kill()
        begin = time.monotonic()
        assert running[0].wait(60) == hosts.LOST
        assert time.monotonic() - begin < 60
    assert "is lost" in said(workdir).splitlines()[-1]

    # Again on both; asked to stop, on one of them, both do, at the same step.
    done = last_step(workdir)
    with started(workdir, environment, **two) as running:
        wait_for_step(workdir, done + 5, running)
        running[1].send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in running] == [128 + signal.SIGTERM] * 2
    assert "continuing from step" in said(workdir)
    stopped = last_step(workdir)
    assert f"SIGTERM: search 0 saved at step {stopped} of" in said(workdir)

    with started(workdir, environment) as running:
        wait_for_step(workdir, stopped + 5, running)
    assert f"continuing from step {stopped}" in said(workdir)
    assert "on 1 devices instead of 2" in said(workdir)


@pytest.mark.slow
def test_supports_that_differ_stop_the_run(tmp_path, environment):
    workdir = tmp_path / "run"
    disturbed = [str(HELPERS / "disturbed.py")]
    with started(workdir, environment, processes=2, program=disturbed) as running:
        codes = [process.wait(400) for process in running]
    assert codes == [2, 2], said(workdir) + said(workdir, 1)
    for number in range(2):
        sentence = said(workdir, number).splitlines()[-1]
        assert f"host {number}: search 0: the recovery before step 0 gave [[[" in sentence
        assert "(host 0, device 0) and [[[" in sentence
        assert "all devices must come to the same support" in sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("localhost:1", None, 0), "go together"),
        (("localhost", 2, 0), "not HOST:PORT"),
        (("localhost:1", 2, 2), "--process 2 is not one of 0 to 1"),
    ],
)
def test_wrong_flags(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        hosts.join(*arguments)
