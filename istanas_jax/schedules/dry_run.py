"""What a run would do, without doing it: its config, folder, images and memory are checked."""

import os

from ml_collections import ConfigDict

from istanas_jax.data.dataset import Dataset
from istanas_jax.data.splits import divide_training, hold_out
from istanas_jax.runs.session import prepare
from istanas_jax.schedules.memory import PhaseNeed, check_memory, free_memory, gibibytes
from istanas_jax.schedules.transfer import source_of


def dry_run(config: ConfigDict, path: str | os.PathLike) -> str:
    """Say what a run would do, and raise what it would at its start; writes and trains nothing."""
    devices, workdir, dataset = prepare(config, path)
    found = check_memory(config, dataset, devices)
    if "transfer" in config.get("train", {}):
        source_of(config, dataset)
    begun = workdir.read(workdir.config_file) is not None
    shape = " x ".join(map(str, dataset.train.image_shape))
    free = free_memory(devices)
    lines = [
        f"{config.schedule} in {path}, {'to be continued' if begun else 'new'}",
        f"{dataset.name}: {len(dataset.train):,} training images of {shape}, "
        f"{dataset.classes} classes",
        *(_phase(config, dataset, phase) for phase in found),
        f"on {len(devices)} x {devices.platform}"
        + (f" acting as {devices.acts_as}" if devices.acts_as != devices.platform else "")
        + (f", {gibibytes(free)} of memory free" if free is not None else ""),
        "nothing was written: without --dry-run it begins",
    ]
    return "\n".join(lines)


def _phase(config: ConfigDict, dataset: Dataset, phase: PhaseNeed) -> str:
    images = len(hold_out(config, dataset)[0])
    if phase.name == "search" and config.schedule == "two_stage":
        images = min(map(len, divide_training(config, dataset)[:2]))
    part = config[phase.name]
    runs = part.get("runs", 1)
    return (
        f"{phase.name}: {phase.cells} cells, {part.channels} channels, {phase.epochs} epochs "
        f"of {images // part.batch:,} steps, batch {part.batch}"
        + (f", {runs} times" if runs > 1 else "")
        + f"; about {gibibytes(phase.bytes)} of memory or more"
    )
