"""Devices that a run is planned for, most of which are not there."""

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import jax
from jax.experimental import topologies

from istanas_jax.devices.parallel import Devices
from istanas_jax.plan.gpus import gpus, hosts_and_gpus, target_config

# Per chip, by the start of a topology's name: GiB that a program may use, and the clock of its
# cores, the published peak in bfloat16 over the multiply-adds of its matrix units in a cycle.
TPU_MEMORY = {"v4": 32, "v5e": 16, "v5p": 95, "v6e": 32}
TPU_GHZ = {"v4": 1.05, "v5e": 1.5, "v5p": 1.75, "v6e": 1.75}


def open_topology(name: str) -> Devices:
    """The devices, real or not, of `cpu:N`, `a100:N` or a TPU slice."""
    platform, _, shape = name.partition(":")
    if platform == "cpu" and re.fullmatch("[0-9]{1,3}", shape) and int(shape) > 0:
        jax.config.update("jax_platforms", "cpu")
        if jax.config.jax_num_cpu_devices != int(shape):
            jax.config.update("jax_num_cpu_devices", int(shape))
        return Devices()
    if platform in gpus() and re.fullmatch("[0-9]{1,5}", shape) and int(shape) > 0:
        return _open_gpus(platform, int(shape))
    if platform not in TPU_MEMORY or not re.fullmatch(r"\d+(x\d+){1,2}", shape):
        raise ValueError(
            f"--topology {name} is neither cpu:N, N up to 999, nor a TPU slice such as v5e:4x8, "
            f"nor GPUs such as a100:8; generations: {', '.join(TPU_MEMORY)}; GPUs: "
            f"{', '.join(gpus())}"
        )
    jax.config.update("jax_platforms", "cpu")  # where what is not compiled for the slice happens
    # Nobody to ask which TPU this machine has: it has none.
    for key, value in (
        ("TPU_SKIP_MDS_QUERY", "1"),
        ("TPU_ACCELERATOR_TYPE", "v5litepod-4"),
        ("TPU_WORKER_HOSTNAMES", "localhost"),
        ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
    ):
        os.environ.setdefault(key, value)
    if importlib.util.find_spec("libtpu") is None:
        raise ValueError("TPU plans need the TPU compiler: pip install -r requirements-tpu.txt")
    try:
        with quiet():
            found = topologies.get_topology_desc(platform="tpu", topology_name=name)
    except Exception as error:
        raise ValueError(f"there is no TPU slice {name}: {str(error).splitlines()[0]}") from None
    return Devices(found.devices)


def _open_gpus(gpu: str, count: int) -> Devices:
    hosts, each = hosts_and_gpus(count)
    jax.config.update("jax_platforms", "cpu")
    if importlib.util.find_spec("jax_cuda12_plugin") is None:
        version = jax.__version__
        raise ValueError(
            f"GPU plans need the compiler for CUDA: pip install jax[cuda12]=={version}"
        )
    with quiet():
        found = topologies.get_topology_desc(
            platform="cuda", target_config=target_config(gpu), topology=f"1x{hosts}x{each}"
        )
    return Devices(found.devices)


@contextmanager
def quiet() -> Iterator[None]:
    """Hide what the compilers' C++ prints on the terminal."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def memory_of(topology: str, devices: int) -> float:
    """Bytes of memory that a device has."""
    if topology.startswith("cpu"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / devices
    chip = topology.partition(":")[0]
    if chip in gpus():
        return gpus()[chip]["device_memory_size"]
    return TPU_MEMORY[chip] * 2**30
