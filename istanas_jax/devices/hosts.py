"""Finds the other hosts of a run, by flags, a TPU pod or Slurm, and notices when one is lost."""

import atexit
import glob
import importlib.util
import os
import re
import sys
import threading
import time
import traceback

import jax
from jax._src.distributed import global_state  # its key-value store has no public name

# Seconds without a sign of life after which a host counts as lost. The others then end, since a
# step that waits for it would wait forever.
LOST_AFTER = 30
BEAT = 3  # seconds between two signs of life
LOST = 75  # exit code: try again
SIGNS = "istanas/alive/"
FAREWELL = 5  # seconds that host 0 waits for others that end as well
LEAVING = "istanas/leaving/"


def join(coordinator: str | None, processes: int | None, process: int | None) -> None:
    """Become one of the processes of a run, before jax is used in any other way.

    With three Nones the environment decides; if it says nothing, the run has one process.
    """
    given = (coordinator, processes, process)
    if None in given and given != (None, None, None):
        raise ValueError("--coordinator, --processes and --process go together: give all or none")
    # jax would end with a failed check and a stack trace; `_watch` notices the loss earlier.
    options = {"heartbeat_timeout_seconds": 3 * LOST_AFTER, "shutdown_timeout_seconds": LOST_AFTER}
    # A signal is a request that `interrupts` reads between two steps, on every host.
    jax.config.update("jax_enable_preemption_service", False)
    if coordinator is not None:
        _check(coordinator, processes, process)
        jax.distributed.initialize(
            coordinator, processes, process, cluster_detection_method="deactivate", **options
        )
    elif _tasks_of_slurm() > 1:
        jax.distributed.initialize(local_device_ids=_gpus_of_slurm(), **options)
    elif _on_tpu_vm():
        jax.distributed.initialize(**options)
    if jax.distributed.is_initialized() and global_state.num_processes > 1:
        over = threading.Event()
        atexit.register(over.set)  # before jax says good-bye to the others
        threading.Thread(target=_watch, args=(over,), daemon=True).start()


def leave_after(error: Exception) -> None:
    """End this process after an error, be it its own or one of working with the others."""
    # jax raises what its runtime reports as either, "UNKNOWN: Gloo AllReduce failed: ...".
    if isinstance(error, jax.errors.JaxRuntimeError) or re.match("[A-Z_]+: ", str(error)):
        _tell_lost("another host", str(error).splitlines()[0][:200])
    if isinstance(error, ValueError | OSError):
        _leave(str(error), 2)
    traceback.print_exception(error)
    _leave(f"{type(error).__name__}: this is a bug in istanas_jax; please report it", 1)


def _leave(message: str, code: int) -> None:
    """Exit at once: an orderly exit would wait for hosts that do not answer."""
    print(f"istanas: host {global_state.process_id}: {message}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    if code != LOST:
        _let_others_speak()
    os._exit(code)


def _let_others_speak() -> None:
    """Host 0 stays a moment: when it goes, jax ends the others in the middle of what they say."""
    client, me = global_state.client, global_state.process_id
    if client is None:
        return
    try:
        client.key_value_set(f"{LEAVING}{me}", "", allow_overwrite=True)
        for other in range(1, global_state.num_processes if me == 0 else 0):
            client.blocking_key_value_get(f"{LEAVING}{other}", 1000 * FAREWELL)
    except jax.errors.JaxRuntimeError:
        pass  # an error of one host alone: the others go on until they miss it


def _watch(over: threading.Event) -> None:
    """Give signs of life and look for those of the others, until it is over."""
    client, me = global_state.client, global_state.process_id
    others = {str(i) for i in range(global_state.num_processes)} - {str(me)}
    heard = {host: ("", time.monotonic()) for host in others}
    beat = 0
    while not over.wait(BEAT):
        beat += 1
        try:
            client.key_value_set(f"{SIGNS}{me}", str(beat), allow_overwrite=True)
            signs = dict(client.key_value_dir_get(SIGNS))
        except jax.errors.JaxRuntimeError as error:
            if not over.is_set():
                _tell_lost("host 0, which the others meet at,", str(error).splitlines()[0])
            return
        for key, sign in signs.items():
            host = key.removeprefix(SIGNS)
            if host in heard and heard[host][0] != sign:
                heard[host] = sign, time.monotonic()
        for host, (_, when) in heard.items():
            if time.monotonic() - when > LOST_AFTER and not over.is_set():
                _tell_lost(f"host {host}", f"nothing heard of it for {LOST_AFTER} s")


def _tell_lost(who: str, why: str) -> None:
    _leave(
        f"{who} is lost ({why}); start the same command on all hosts, and the run goes on from its "
        "last checkpoint",
        LOST,
    )


def _check(coordinator: str, processes: int, process: int) -> None:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"--coordinator {coordinator} is not HOST:PORT, e.g. 10.0.0.1:8476")
    if not 0 <= process < processes:
        raise ValueError(f"--process {process} is not one of 0 to {processes - 1}")


def _tasks_of_slurm() -> int:
    """Number of tasks in this process's Slurm step; a shell in an allocation is in no step."""
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) if "SLURM_PROCID" in os.environ else 1


def _gpus_of_slurm() -> list[int] | None:
    """All GPUs of a node if it has one task; None is jax's default, one GPU per task."""
    alone = os.environ.get("SLURM_STEP_NUM_NODES") == os.environ.get("SLURM_STEP_NUM_TASKS")
    gpus = int(os.environ.get("SLURM_GPUS_ON_NODE", 0))
    return list(range(gpus)) if alone and gpus else None


def _on_tpu_vm() -> bool:
    chips = glob.glob("/dev/accel[0-9]*") + glob.glob("/dev/vfio/[0-9]*")
    return bool(chips) and importlib.util.find_spec("libtpu") is not None
