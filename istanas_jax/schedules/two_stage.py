"""Two stages: search with a small super-net, then train the found cells at full size."""

import os

from ml_collections import ConfigDict

from istanas_jax.look.ascii_cells import describe_cells
from istanas_jax.runs.once import add_seconds, each_once
from istanas_jax.runs.session import Session, open_session
from istanas_jax.schedules.memory import check_memory
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.results import accuracies, write_architecture, write_report, write_result
from istanas_jax.schedules.search import make_search
from istanas_jax.schedules.set_aside import set_aside_others
from istanas_jax.schedules.training import TrainTask
from istanas_jax.space.genotype import Genotype
from istanas_jax.training.search_accuracy import IMAGES, read_search


def run(config: ConfigDict, workdir: str | os.PathLike) -> dict:
    """Run the whole schedule; return what result.json holds."""
    with open_session(config, workdir) as session:
        dataset, devices = session.dataset, session.devices
        check_memory(config, dataset, devices)
        searches, best = _search(session)
        net = target_net(config, config.train, dataset, Genotype.from_dict(best["genotype"]))
        task = TrainTask(config, dataset, devices, net)
        trainings = each_once(session, "retrain", config.train.runs, task.run)
        result = {
            "schedule": config.schedule,
            **accuracies(trainings),
            "genotype": best["genotype"],
            "parameters": task.parameters,
            "search": searches,
            "seconds": {"search": add_seconds(searches), "retrain": add_seconds(trainings)},
        }
        return write_result(session, result)


def search(config: ConfigDict, workdir: str | os.PathLike) -> dict:
    """Run the first stage alone; `run` in the same folder goes on from it."""
    with open_session(config, workdir) as session:
        check_memory(config, session.dataset, session.devices)
        best = _search(session)[1]
        write_report(session)
        return best


def _search(session: Session) -> tuple[list[dict], dict]:
    """Do all searches; return them, and the best one on images that trained no weights."""
    config = session.config
    task = make_search(config, session.dataset, session.devices)
    searches = each_once(session, "search", config.search.runs, task.run)
    searches = [read_search(found, config) for found in searches]
    best = max(searches, key=lambda found: found["accuracy"])
    genotype = Genotype.from_dict(best["genotype"])
    set_aside_others(session, genotype)
    net = target_net(config, config.train, session.dataset, genotype)
    write_architecture(session, net, best["coefficients"])
    chosen = f" (the best of {len(searches)})" if len(searches) > 1 else ""
    session.say(
        f"search: {100 * best['accuracy']:.2f} % of {IMAGES[best['accuracy_of']]} right{chosen}, "
        f"with\n{describe_cells(genotype)}"
    )
    return searches, best
