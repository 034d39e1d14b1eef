"""Rows to Weights & Biases; the environment variable WANDB_MODE=offline keeps them on the disk.

A run that is continued goes on in the same W&B run. Rows that were written after its last
checkpoint come twice.
"""

from typing import Any

import wandb

from istanas_jax.runs.folder import Workdir
from istanas_jax.storage.files import in_bucket

IDENTITY = "wandb.json"


class Writer:
    def __init__(self, workdir: Workdir, config: dict[str, Any]):
        before = workdir.read(IDENTITY) or {}
        self.run = wandb.init(
            project="istanas",
            name=workdir.path.name,
            id=before.get("id"),
            resume="allow",
            config=config,
            dir=None if in_bucket(workdir.path) else str(workdir.path),
        )
        workdir.write(IDENTITY, {"id": self.run.id})
        self._known: set[str] = set()

    def write(self, phase: str, step: int, numbers: dict[str, float]) -> None:
        if phase not in self._known:  # each phase counts its own steps
            self.run.define_metric(f"{phase}/step")
            self.run.define_metric(f"{phase}/*", step_metric=f"{phase}/step")
            self._known.add(phase)
        row = {f"{phase}/{name}": value for name, value in numbers.items()}
        self.run.log(row | {f"{phase}/step": step})

    def close(self) -> None:
        self.run.finish()
