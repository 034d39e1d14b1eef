"""Whether a run fits on given devices, and about how long it will take, before it is launched.

The steps that the run would use are compiled for the devices: for TPU slices by the TPU compiler of
libtpu, which needs no TPU, for GPUs by XLA's compiler for CUDA, which needs no GPU. Nothing is
executed and no data is read.
"""

import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from istanas_jax.config.checks import check_config
from istanas_jax.data.dataset import Dataset
from istanas_jax.devices.parallel import Devices
from istanas_jax.networks.counting import count, count_supernet, seen_size
from istanas_jax.plan.gpu_hlo import GpuProgram
from istanas_jax.plan.gpus import gpus, roofline_seconds
from istanas_jax.plan.hlo import estimated_cycles, reduced_bytes
from istanas_jax.plan.topologies import TPU_GHZ, memory_of, open_topology, quiet
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.outline import outline
from istanas_jax.schedules.search import OneStageSearch, TwoStageSearch
from istanas_jax.schedules.training import TrainTask
from istanas_jax.space import genotype
from istanas_jax.space.spaces import DARTS, read_space

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
      topology: `cpu:8`, GPUs of a kind, `a100:8`, or a TPU slice: generation and shape, `v5e:4x8`.
      say: called with a line about what is going on.
    """
    devices = open_topology(topology)
    check_config(config, len(devices))
    memory = memory_of(topology, len(devices))
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


def _phases(config: ConfigDict, dataset: Dataset, devices: Devices) -> list[Planned]:
    schedule, size = config.schedule, dataset.image_size
    space = read_space(config.space) if "space" in config else None
    # An architecture decides about the work; the paper's stands for that which will be found.
    if space is None:
        cells = genotype.load(config.genotype)
    elif space == DARTS:
        cells = genotype.load("ISTA_onestage" if schedule == "one_stage" else "ISTA_twostage")
    else:
        cells = genotype.random_genotype(0, space)
    work = lambda net: count(net.clone(auxiliary=False), size).multiply_adds  # noqa: E731
    if schedule == "one_stage":
        search = OneStageSearch(config, dataset, devices)
        ones = jnp.ones((2, space.nodes, space.most))
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
        seen = seen_size(search.net, size)
        searched, passes = count(small.clone(auxiliary=False), seen).multiply_adds, PASSES["search"]
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
    task, device = phase.task, topology.partition(":")[0]
    if device == "cpu":
        work = results["multiply_adds"] * len(task.devices)
        seconds = work / CPU_MULTIPLY_ADDS_PER_SECOND
    elif device in gpus():
        results |= _gpu_figures(device, phase, program)
        seconds = results["roofline_seconds"]
    else:
        seconds = estimated_cycles(program) / (1e9 * TPU_GHZ[device])
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


def _gpu_figures(gpu: str, phase: Planned, program: str) -> dict:
    read, settings = GpuProgram(program), phase.task.config[phase.name]
    moved, work = read.moved_bytes(), _base(phase)["multiply_adds"]
    rounding = {"dtype": settings.dtype, "precision": settings.matmul_precision}
    return {
        "kernels": read.kernels(),
        "transposes": read.transposes(),
        "moved_bytes": moved,
        "roofline_seconds": roofline_seconds(gpu, moved, work, **rounding),
    }


def _compile(lowered, devices: Devices) -> tuple[Any, float]:
    begin = time.perf_counter()
    try:
        with quiet():
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
    memory = memory_of(topology, len(devices))

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
