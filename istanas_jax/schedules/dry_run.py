"""What a run would do, without doing it: its config, folder, images and memory are checked."""

import os

from ml_collections import ConfigDict

from istanas_jax.data.splits import divide_training, hold_out
from istanas_jax.runs.session import Session, prepare
from istanas_jax.schedules import outline
from istanas_jax.schedules.memory import Phase, check_memory, free_memory, gibibytes


def dry_run(config: ConfigDict, path: str | os.PathLike) -> str:
    """In words; nothing is written, compiled or trained. Raises what the run would at its start."""
    devices, workdir, dataset = prepare(config, path)
    session = outline.make_session(config, dataset, devices, print)
    found = check_memory(session)
    begun = workdir.read(workdir.config_file) is not None
    shape = " x ".join(map(str, dataset.train.image_shape))
    free = free_memory(devices)
    lines = [
        f"{config.schedule} in {path}, {'to be continued' if begun else 'new'}",
        f"{dataset.name}: {len(dataset.train):,} training images of {shape}, "
        f"{dataset.classes} classes",
        *(_phase(session, phase) for phase in found),
        f"on {len(devices)} x {devices.platform}"
        + (f", {gibibytes(free)} of memory free" if free is not None else ""),
        "nothing was written: without --dry-run it begins",
    ]
    return "\n".join(lines)


def _phase(session: Session, phase: Phase) -> str:
    config = session.config[phase.name]
    images = len(hold_out(session.config, session.dataset)[0])
    if phase.name == "search" and session.config.schedule == "two_stage":
        images = min(map(len, divide_training(session.config, session.dataset)[:2]))
    runs = config.get("runs", 1)
    return (
        f"{phase.name}: {phase.cells} cells, {config.channels} channels, {phase.epochs} epochs "
        f"of {images // config.batch:,} steps, batch {config.batch}"
        + (f", {runs} times" if runs > 1 else "")
        + f"; about {gibibytes(phase.bytes)} of memory or more"
    )
