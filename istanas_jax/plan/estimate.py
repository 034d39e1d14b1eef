"""Whether a run fits on given devices, and about how long it will take, before it is launched.

The steps that the run would use are compiled for the devices: for TPU slices by the TPU
compiler of libtpu, which needs no TPU. Nothing is executed and no data is read.
"""

import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from istanas_jax.config.checks import check_config
from istanas_jax.data.dataset import Dataset
from istanas_jax.devices.parallel import Devices
from istanas_jax.networks.counting import count, count_supernet
from istanas_jax.plan.hlo import estimated_cycles, reduced_bytes
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.outline import outline
from istanas_jax.schedules.search import OneStageSearch, TwoStageSearch
from istanas_jax.schedules.training import TrainTask
from istanas_jax.space import genotype

# Per chip, by the start of a topology's name: GiB that a program may use, and the clock of its
# cores, the published peak in bfloat16 over the multiply-adds of its matrix units in a cycle.
TPU_MEMORY = {"v4": 32, "v5e": 16, "v5p": 95, "v6e": 32}
TPU_GHZ = {"v4": 1.05, "v5e": 1.5, "v5p": 1.75, "v6e": 1.75}
# All devices of a CPU together, as `bench step` measured on 2 cores of an AMD EPYC.
CPU_MULTIPLY_ADDS_PER_SECOND = 30e9
# Forward passes that a step is worth: a backward pass is two, or one if the weights need no
# gradient, and the dynamic net runs each operation again in it.
PASSES = {"search": 7, "dense": 5, "one_stage": 4, "train": 3}
SMALLEST = 8  # images: batches per chip are tried in multiples of it


class Planned(NamedTuple):
    """A part of the schedule that has a step of its own."""

    name: str
    task: Any
    state: Any  # shapes of the task's state
    multiply_adds: int  # forward pass of one image
    passes: int
    runs: int


class OutOfMemory(Exception):
    """The compiler found no room for a program."""

    def __init__(self, needed: float):
        self.needed = needed  # bytes


def run(config: ConfigDict, topology: str, *, say: Callable[[str], object] = print) -> dict:
    """Compile the steps of all phases for the topology.

    Args:
      topology: `cpu:8`, or a TPU slice: generation and shape, `v5e:4x8`.
      say: called with a line about what is going on.
    """
    devices = open_topology(topology)
    check_config(config, len(devices))
    memory = _memory(topology, len(devices))
    dataset = outline(config.data)
    results = []
    for phase in _phases(config, dataset, devices):
        say(f"{phase.name}: compiling for {topology} ...")
        try:
            results.append(_measure(phase, topology, memory))
        except OutOfMemory as error:
            results.append(_base(phase) | {"memory": error.needed, "fits": False})
        if not results[-1]["fits"]:
            per_chip = _largest_batch(config, topology, dataset, devices, phase, say)
            results[-1]["largest_batch_per_chip"] = per_chip
    return {
        "topology": topology,
        "chips": len(devices),
        "hosts": devices.hosts,
        "memory_per_chip": memory,
        "phases": results,
        "fits": all(phase["fits"] for phase in results),
    }


def open_topology(name: str) -> Devices:
    """The devices, real or not, of `cpu:N` or a TPU slice."""
    platform, _, shape = name.partition(":")
    if platform == "cpu" and re.fullmatch("[0-9]{1,3}", shape) and int(shape) > 0:
        jax.config.update("jax_platforms", "cpu")
        if jax.config.jax_num_cpu_devices != int(shape):
            jax.config.update("jax_num_cpu_devices", int(shape))
        return Devices()
    if platform not in TPU_MEMORY or not re.fullmatch(r"\d+(x\d+){1,2}", shape):
        raise ValueError(
            f"--topology {name} is neither cpu:N, N up to 999, nor a TPU slice such as v5e:4x8; "
            f"generations: {', '.join(TPU_MEMORY)}"
        )
    from jax.experimental import topologies

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
        with _quiet():
            found = topologies.get_topology_desc(platform="tpu", topology_name=name)
    except Exception as error:
        raise ValueError(f"there is no TPU slice {name}: {str(error).splitlines()[0]}") from None
    return Devices(found.devices)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what libtpu's C++ prints on the terminal when it starts."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def _memory(topology: str, devices: int) -> float:
    """Bytes of memory that a device has."""
    if topology.startswith("cpu"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / devices
    return TPU_MEMORY[topology.partition(":")[0]] * 2**30


def _phases(config: ConfigDict, dataset: Dataset, devices: Devices) -> list[Planned]:
    schedule, a, size = config.schedule, config.get("architecture"), dataset.image_size
    # An architecture decides about the work; the paper's stands for that which will be found.
    if a is None:
        cells = genotype.load(config.genotype)
    elif (a.nodes, a.s) == (4, 2):
        cells = genotype.load("ISTA_onestage" if schedule == "one_stage" else "ISTA_twostage")
    else:
        cells = genotype.random_genotype(0, num_nodes=a.nodes, s=a.s)
    work = lambda net: count(net.clone(auxiliary=False), size).multiply_adds  # noqa: E731
    if schedule == "one_stage":
        search = OneStageSearch(config, dataset, devices)
        ones = jnp.ones((2, a.nodes, a.s))
        net = target_net(config, config.train, dataset, cells)
        train = TrainTask(config, dataset, devices, net, name="train", coefficients=ones)
        searched = work(target_net(config, config.search, dataset, cells))
        return [
            Planned("search", search, search.shapes(), searched, PASSES["one_stage"], 1),
            Planned("train", train, train.shapes(), work(net), PASSES["train"], 1),
        ]
    net = target_net(config, config.train, dataset, cells)
    train = TrainTask(config, dataset, devices, net)
    phases = [
        Planned("train", train, train.shapes(), work(net), PASSES["train"], config.train.runs)
    ]
    if schedule == "two_stage":
        phase = config.search
        search = TwoStageSearch(config, dataset, devices, net)
        small = net.clone(cells=search.net.cells, channels=phase.channels, stem=phase.stem)
        searched, passes = work(small), PASSES["search"]
        if search.method.dense:
            searched, passes = (
                count_supernet(search.net, image_size=size).multiply_adds,
                PASSES["dense"],
            )
        phases.insert(0, Planned("search", search, search.shapes(), searched, passes, phase.runs))
    return phases


def _base(phase: Planned) -> dict:
    task = phase.task
    per_chip = task.batch // len(task.devices)
    return {
        "phase": phase.name,
        "batch": task.batch,
        "batch_per_chip": per_chip,
        "multiply_adds": per_chip * phase.multiply_adds * phase.passes,
    }


def _measure(phase: Planned, topology: str, memory: float) -> dict:
    """Compile the step of a phase and read what the compiler knows."""
    begin = time.perf_counter()
    lowered = phase.task.lower(phase.state)
    trace = time.perf_counter() - begin
    compiled, compile_seconds = _compile(lowered, phase.task.devices)
    results, program = _base(phase), compiled.as_text()
    needed = _bytes_needed(compiled)
    if topology.startswith("cpu"):
        all_devices = len(phase.task.devices)
        seconds = results["multiply_adds"] * all_devices / CPU_MULTIPLY_ADDS_PER_SECOND
    else:
        seconds = estimated_cycles(program) / (1e9 * TPU_GHZ[topology.partition(":")[0]])
    task = phase.task
    return results | {
        "memory": needed,
        "fits": needed <= memory,
        "reduced_bytes": reduced_bytes(program),
        "trace_seconds": trace,
        "compile_seconds": compile_seconds,
        "step_seconds": seconds,
        "epoch_seconds": seconds * task.steps_per_epoch,
        "schedule_seconds": seconds * task.steps_per_epoch * task.epochs * phase.runs,
    }


def _compile(lowered, devices: Devices) -> tuple[Any, float]:
    begin = time.perf_counter()
    try:
        with _quiet():
            compiled = devices.compile(lowered)
    except jax.errors.JaxRuntimeError as error:
        used = re.search(r"Used ([\d.]+)([KMG]) of", str(error))
        if not used:
            raise
        raise OutOfMemory(float(used[1]) * 1024 ** ("KMG".index(used[2]) + 1)) from None
    return compiled, time.perf_counter() - begin


def _bytes_needed(compiled) -> int:
    """Bytes on one device: the state, a batch, what the step needs meanwhile, and its code."""
    m = compiled.memory_analysis()
    return (
        m.argument_size_in_bytes
        + m.output_size_in_bytes
        - m.alias_size_in_bytes
        + m.temp_size_in_bytes
        + m.generated_code_size_in_bytes
    )


def _largest_batch(config, topology, dataset, devices, phase: Planned, say) -> int:
    """The most images per chip that fit, a multiple of SMALLEST; 0 if none do."""
    memory = _memory(topology, len(devices))

    def fits(per_chip: int) -> bool:
        say(f"{phase.name}: trying {per_chip} images per chip ...")
        smaller = ConfigDict(config.to_dict())
        smaller[phase.name].batch = per_chip * len(devices)
        smaller[phase.name].microbatches = 1
        phases = _phases(smaller, dataset, devices)
        same = next(other for other in phases if other.name == phase.name)
        try:
            return _measure(same, topology, memory)["fits"]
        except OutOfMemory:
            return False

    # In units of SMALLEST: `low` fits, `high` does not.
    low, high = 0, -(-phase.task.batch // len(devices) // SMALLEST)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * SMALLEST) else (low, middle)
    return low * SMALLEST
