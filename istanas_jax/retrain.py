"""Train a given cell from scratch: the evaluation of an architecture."""

import os

from ml_collections import ConfigDict

from istanas_jax import genotype
from istanas_jax.session import (
    accuracies,
    add_seconds,
    each_once,
    open_session,
    write_architecture,
    write_result,
)
from istanas_jax.training import TrainTask, retrain_net


def run(config: ConfigDict, workdir: str | os.PathLike) -> dict:
    """Train `config.genotype`; returns what result.json holds."""
    found = genotype.load(config.genotype)
    with open_session(config, workdir) as session:
        task = TrainTask(session, retrain_net(session, found), config.retrain)
        write_architecture(session, found)
        trainings = each_once(session, "retrain", config.retrain.runs, task.run)
        result = {
            "schedule": "retrain",
            **accuracies(trainings),
            "genotype": found.to_dict(),
            "parameters": task.parameters,
            "seconds": {"retrain": add_seconds(trainings)},
        }
        return write_result(session, result)
