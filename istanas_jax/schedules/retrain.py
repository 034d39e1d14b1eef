"""Train a given cell from scratch: the evaluation of an architecture."""

import os

from ml_collections import ConfigDict

from istanas_jax.runs.folder import GENOTYPE, WorkdirError
from istanas_jax.runs.once import add_seconds, each_once
from istanas_jax.runs.session import open_session
from istanas_jax.schedules.memory import check_memory
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.results import accuracies, write_architecture, write_result
from istanas_jax.schedules.training import TrainTask
from istanas_jax.schedules.transfer import source_of
from istanas_jax.space import genotype


def config_for(
    config: ConfigDict, spec: str | None, *, one_stage: bool = False, runs: int | None = None
) -> ConfigDict:
    """Make a config that trains the genotype `spec`, or the config's own, as the config says.

    Args:
      config: its `train` part says how; that of a one-stage config trains from scratch here.
      one_stage: whether the net has the batch norms of one-stage cells.
      runs: number of seeds, if not the config's.
    """
    config = config.copy_and_resolve_references()
    with config.unlocked():
        if config.schedule == "one_stage":
            config.train.update({"runs": 1, "one_stage_norms": True})
        if spec is not None:
            config.genotype = spec
        elif "genotype" not in config:
            raise ValueError("give --genotype: the config names none")
        if one_stage:
            config.train.one_stage_norms = True
        if runs is not None:
            config.train.runs = runs
        config.schedule = "retrain"
    return config


def run(config: ConfigDict, workdir: str | os.PathLike) -> dict:
    """Train `config.genotype`; return what result.json holds."""
    if "transfer" in config.train and not config.train.transfer.source:
        raise ValueError("give --from RUN: the config starts from a network and names none")
    found = genotype.load(config.genotype)
    with open_session(config, workdir) as session:
        before = session.workdir.read(GENOTYPE)
        if before is not None and genotype.Genotype.from_dict(before) != found:
            raise WorkdirError(
                f"{workdir} holds trainings of other cells than {config.genotype} now gives; "
                "choose another folder"
            )
        dataset, devices = session.dataset, session.devices
        check_memory(config, dataset, devices)
        if "transfer" in config.train:
            source_of(config, dataset)  # before anything is written
        net = target_net(config, config.train, dataset, found)
        task = TrainTask(config, dataset, devices, net)
        write_architecture(session, net)
        trainings = each_once(session, "retrain", config.train.runs, task.run)
        result = {
            "schedule": "retrain",
            **accuracies(trainings),
            "genotype": found.to_dict(),
            "parameters": task.parameters,
            "seconds": {"retrain": add_seconds(trainings)},
        }
        return write_result(session, result)
