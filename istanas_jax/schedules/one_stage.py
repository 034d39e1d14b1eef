"""One-stage ISTA-NAS, Algorithm 2: search and train the target net in one run, then absorb.

The super-net has the target net's size from the start. When all nodes are frozen the static net
takes over its weights, momentum and statistics; at the end the coefficients go into batch norms.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from ml_collections import ConfigDict

from istanas_jax.data.augmentation import normalise
from istanas_jax.look.ascii_cells import describe_cells
from istanas_jax.methods.search_accuracy import read_search
from istanas_jax.networks.absorption import absorb
from istanas_jax.networks.static import select_params, select_stats
from istanas_jax.runs.loop import fit
from istanas_jax.runs.once import add_seconds, each_once
from istanas_jax.runs.session import Session, open_session
from istanas_jax.runs.trained_network import Trained, make_trained, save_trained
from istanas_jax.schedules.memory import check_memory
from istanas_jax.schedules.results import accuracies, write_architecture, write_result
from istanas_jax.schedules.search import OneStageSearch, one_stage_net, supports_of
from istanas_jax.schedules.training import TrainTask
from istanas_jax.space.genotype import Genotype
from istanas_jax.training.errors import TrainingError
from istanas_jax.training.states import SearchState, TrainState

# Largest difference of logits that absorption may make: float32 products in another order.
TOLERANCE = 1e-4
COMPARED = 64  # images whose logits are compared before and after


def run(config: ConfigDict, workdir: str | os.PathLike) -> dict:
    """The whole schedule; returns what result.json holds."""
    with open_session(config, workdir) as session:
        check_memory(session)
        search = OneStageSearch(session)
        state, found = _search(search, session)
        weights = jnp.asarray(found["coefficients"])
        genotype = Genotype.from_dict(found["genotype"])
        net = one_stage_net(session, config.train, genotype)
        task = TrainTask(session, net, config.train, kind="train", coefficients=weights)
        start = switch(state, search, task)
        trained = each_once(session, "train", 1, lambda _: _train(task, start, weights))
        result = {
            "schedule": config.schedule,
            **accuracies(trained),
            "genotype": found["genotype"],
            "parameters": task.parameters,
            "absorption_difference": trained[0]["absorption_difference"],
            "search": found,
            "seconds": {"search": add_seconds([found]), "train": add_seconds(trained)},
        }
        return write_result(session, result)


def _search(search: OneStageSearch, session: Session) -> tuple[SearchState, dict]:
    """Until all nodes are frozen, or the epochs are over."""
    search.begin(0)
    state, seconds = fit(search, search.start(), session)
    open_nodes = int(np.sum(~np.asarray(state.arch.frozen)))
    figures = search.result(state, seconds) if session.workdir.read("search_0.json") is None else {}
    found = each_once(session, "search", 1, lambda _: figures | {"frozen_by_limit": open_nodes})[0]
    found = read_search(found, session.config)
    if open_nodes:
        session.say(
            f"search 0: after {search.epochs} epochs {open_nodes} nodes have not come to rest; "
            "they are frozen as they are"
        )
    genotype = Genotype.from_dict(found["genotype"])
    write_architecture(session, genotype, found["coefficients"])
    session.say(
        f"search 0: the architecture is fixed after {found['epochs']} epochs, training goes on "
        f"with the static net\n{describe_cells(genotype)}"
    )
    return state, found


def switch(state: SearchState, search: OneStageSearch, task: TrainTask) -> TrainState:
    """From the super-net to the static net: the active weights, momentum and statistics."""
    supports = supports_of(state.arch)
    before = jax.device_get(state.weights)
    select = lambda tree: select_params(tree, search.net, supports)  # noqa: E731
    params = select(before.params)
    stats = select_stats(before.stats, search.net, supports)
    momentum = select(optax.tree_utils.tree_get(before.sgd, "trace"))
    task.begin(0)
    start = TrainState.create({"params": params, "batch_stats": stats}, task.sgd, task.seed)
    return start.replace(sgd=optax.tree_utils.tree_set(start.sgd, trace=momentum))


def _train(task: TrainTask, start: TrainState, weights: Float[Array, "cells nodes s"]) -> dict:
    """The schedule with the architecture fixed, absorption, and the only look at the test split."""
    session = task.session
    state, seconds = fit(task, start, session)
    after = jax.device_get(state)
    after = after.replace(params=absorb(task.net, after.params, weights))
    absorbed = make_trained(task.net, after.params, after.stats, session.dataset)
    difference = compare_logits(task, state, absorbed, weights)
    if not difference < TOLERANCE:
        raise TrainingError(f"absorption changes logits by {difference:.2g}")
    session.say(f"train 0: the coefficients are in the batch norms, logits differ {difference:.1e}")
    save_trained(session.workdir.path, absorbed)
    plain = TrainTask(session, task.net, session.config.train, kind="train")
    test = plain.evaluate(session.devices.replicate(after), session.dataset.test())
    figures = {"seed": task.seed, **task.origin, "seconds": seconds}
    figures["absorption_difference"] = difference
    figures |= {f"test_{key}": value for key, value in test.items()}
    return figures


def compare_logits(task: TrainTask, state: TrainState, absorbed: Trained, weights) -> float:
    """Largest difference of logits, in evaluation mode, with coefficients and after absorption."""
    dataset = task.session.dataset
    some = np.arange(min(COMPARED, len(dataset.train)))
    images, _ = next(dataset.train.batches([some], seed=None))
    x = normalise(images, dataset.mean, dataset.std)
    params, stats = jax.device_get((state.params, state.stats))
    params = {k: v for k, v in params.items() if k != "auxiliary"}
    stats = {k: v for k, v in stats.items() if k != "auxiliary"}
    net = absorbed.net

    @jax.jit
    def logits(x):
        before = net.apply(
            {"params": params, "batch_stats": stats}, x, train=False, coefficients=weights
        )
        after = net.apply(absorbed.variables, x, train=False)
        return before[0], after[0]

    before, after = logits(x)
    return float(jnp.max(jnp.abs(before - after)))
