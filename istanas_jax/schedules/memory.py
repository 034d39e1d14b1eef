"""How much memory a run needs at least, by counting, before any of it is allocated.

The estimate is rather low, so that hardly anything is refused that would have run; what XLA sets
aside was 0.9 to 1.9 times as much in the nets that were compiled for comparison. Cells that are
still to be found are taken to be random ones.
"""

import os
from pathlib import Path
from typing import NamedTuple

import jax
import psutil
from ml_collections import ConfigDict

from istanas_jax.data.dataset import Dataset
from istanas_jax.devices.parallel import Devices
from istanas_jax.methods import find_method
from istanas_jax.networks.counting import cell_places, count, count_supernet
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.schedules.nets import super_net, target_net
from istanas_jax.space import genotype

COPIES = 3  # the parameters themselves, their momentum, their gradient
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Need(NamedTuple):
    """Bytes that a step needs on one device."""

    fixed: int  # whatever the batch
    per_image: int

    def of(self, images: float) -> float:
        return self.fixed + self.per_image * images


class PhaseNeed(NamedTuple):
    """The memory that a phase of a run needs."""

    name: str  # the part of the config
    cells: int
    epochs: int
    need: Need
    images: float  # how many a device sees at a time
    bytes: float  # on all devices of a host where they share its memory, otherwise on one


class TooLarge(ValueError):
    """A run that needs more memory than there is, said in one sentence."""


def need_of(net: SuperNet | TargetNet, image_size: int, *, dense: bool = False) -> Need:
    """The least memory that a training step of the net needs.

    dense: whether all candidates run, and keep what their gradients need.
    """
    if isinstance(net, TargetNet):
        counts = count(net.clone(auxiliary=False), image_size)
    else:
        counts = count_supernet(net, image_size=image_size)
    if dense or isinstance(net, TargetNet):
        # Autodiff keeps about an element for each one that a layer reads or normalises, and of
        # a table's candidates their weighted outputs as well.
        kept = (1 + dense) * (counts.flops - counts.multiply_adds)
    else:
        kept = sum(_states(net, *place) for place in cell_places(net, image_size))
    size = 2 if net.dtype == "bfloat16" else 4
    return Need(4 * COPIES * counts.parameters, size * kept)


def _states(net: SuperNet, plan, outer: int, inner: int) -> int:
    """Elements kept by a cell that runs its operations again: its inputs and its nodes."""
    given = (4 * plan.in0 if plan.halve else plan.in0) + plan.in1
    return (given + 2 * plan.channels) * outer**2 + net.space.nodes * plan.channels * inner**2


def needs(config: ConfigDict, dataset: Dataset, devices: Devices) -> list[PhaseNeed]:
    """The memory that each phase of a run needs."""
    nets, epochs = {}, {}
    if config.schedule == "retrain":
        net = target_net(config, config.train, dataset, genotype.load(config.genotype))
        nets["train"] = net, False
    else:
        method = find_method(config.search.method)(config, 1)
        regime = "search" if config.schedule == "two_stage" else "one_stage"
        # Dense methods may run their operations again, as the super-net of ISTA-NAS does.
        keeps = method.dense and not method.settings.get("recompute", False)
        nets["search"] = super_net(config, dataset, method, regime), keeps
        epochs["search"] = method.epochs
        nets["train"] = target_net(config, config.train, dataset), False
    found = []
    for name, (net, dense) in nets.items():
        _check(net, name, dataset.image_size)
        need = need_of(net, dataset.image_size, dense=dense)
        images = config[name].batch / (len(devices) * config[name].microbatches)
        size = _sharing(devices) * need.of(images)
        found.append(
            PhaseNeed(name, net.cells, epochs.get(name) or config[name].epochs, need, images, size)
        )
    return found


def _check(net: SuperNet | TargetNet, name: str, image_size: int) -> None:
    """Raise what the network would say about its sizes when it is built, perhaps days later."""
    if isinstance(net, SuperNet):
        for plan in net.plans():
            net.spec(plan)
        counts = count_supernet(net, image_size=image_size)
    else:
        counts = count(net, image_size)
    if net.auxiliary and counts.parameters_with_auxiliary is None:
        raise ValueError(
            f"{name}.auxiliary_weight must be 0: too few of the images' {image_size} pixels are "
            "left for the auxiliary head"
        )


def _sharing(devices: Devices) -> int:
    """Number of devices that share one memory: those of a CPU do."""
    return len(devices) // devices.hosts if devices.platform == "cpu" else 1


def free_memory(devices: Devices) -> float | None:
    """Bytes that are free on this host, or on each of its accelerators; None if it is not known."""
    if devices.platform != "cpu":
        stats = jax.local_devices()[0].memory_stats() or {}
        limit = stats.get("bytes_limit")
        return None if limit is None else limit - stats.get("bytes_in_use", 0)
    free = psutil.virtual_memory().available
    used = psutil.Process(os.getpid()).memory_info().rss
    for file in map(Path, LIMITS):  # the limits of a container
        text = file.read_text().strip() if file.exists() else ""
        if text.isdecimal():
            free = min(free, max(int(text) - used, 0))
    return free


def check_memory(config: ConfigDict, dataset: Dataset, devices: Devices) -> list[PhaseNeed]:
    """Return what the phases need; raise TooLarge, with what would fit, if one cannot run."""
    free, found = free_memory(devices), needs(config, dataset, devices)
    for phase in found:
        if free is not None and phase.bytes > free:
            raise TooLarge(
                f"{phase.name} needs about {gibibytes(phase.bytes)} of memory or more, "
                f"{gibibytes(free)} are free: {_what_fits(config, dataset, devices, phase, free)}"
            )
    return found


def _what_fits(config, dataset: Dataset, devices: Devices, phase: PhaseNeed, free: float) -> str:
    unit = len(devices) * config[phase.name].microbatches
    images = (free / _sharing(devices) - phase.need.fixed) // phase.need.per_image
    if images >= 1:
        return f"{phase.name}.batch={int(images) * unit} would fit"
    channels = config[phase.name].channels
    while channels >= 4:
        channels = channels // 4 * 2
        smaller = config.copy_and_resolve_references()
        smaller[phase.name].channels = channels
        needed = {other.name: other.bytes for other in needs(smaller, dataset, devices)}
        if needed[phase.name] <= free:
            return f"{phase.name}.channels={channels} would fit"
    return f"take fewer {phase.name}.cells, or smaller images"


def gibibytes(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**28 else f"{size / 2**20:,.1f} MiB"
