"""Rows to MLflow, where its environment variable MLFLOW_TRACKING_URI says.

A run that is continued goes on in the same MLflow run. Rows that were written after its last
checkpoint come twice.
"""

import re
from typing import Any

import mlflow

from istanas_jax.runs.folder import Workdir, flat

IDENTITY = "mlflow.json"
MANY = 100  # parameters that MLflow takes at once


class Writer:
    def __init__(self, workdir: Workdir, config: dict[str, Any]):
        self.client = mlflow.MlflowClient()
        before = workdir.read(IDENTITY)
        if before is not None:
            self.run = before["run"]
            self.client.update_run(self.run, status="RUNNING")
            return
        found = self.client.get_experiment_by_name("istanas")
        experiment = found.experiment_id if found else self.client.create_experiment("istanas")
        self.run = self.client.create_run(experiment, run_name=workdir.path.name).info.run_id
        workdir.write(IDENTITY, {"run": self.run})
        params = [mlflow.entities.Param(key, str(value)) for key, value in flat(config).items()]
        for first in range(0, len(params), MANY):
            self.client.log_batch(self.run, params=params[first : first + MANY])

    def write(self, phase: str, step: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            key = re.sub(r"[^\w./ -]", "_", f"{phase}/{name}")  # what MLflow takes as a name
            self.client.log_metric(self.run, key, value, step=step)

    def close(self) -> None:
        self.client.set_terminated(self.run)
