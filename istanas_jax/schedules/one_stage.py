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
from istanas_jax.networks import agreement
from istanas_jax.networks.absorption import absorb
from istanas_jax.networks.agreement import Agreement
from istanas_jax.networks.supernet.static import select_params, select_stats
from istanas_jax.runs.loop import fit
from istanas_jax.runs.once import add_seconds, once
from istanas_jax.runs.phases import Phase
from istanas_jax.runs.session import Session, open_session
from istanas_jax.runs.trained_network import Trained, make_trained, save_trained
from istanas_jax.schedules.memory import check_memory
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.results import accuracies, write_architecture, write_result
from istanas_jax.schedules.search import OneStageSearch
from istanas_jax.schedules.training import TrainTask
from istanas_jax.space.genotype import Genotype
from istanas_jax.training.search_accuracy import read_search
from istanas_jax.training.states import SearchState, TrainState

COMPARED = 64  # images whose logits are compared before and after


def run(config: ConfigDict, workdir: str | os.PathLike) -> dict:
    """Run the whole schedule; return what result.json holds."""
    with open_session(config, workdir) as session:
        dataset, devices = session.dataset, session.devices
        check_memory(config, dataset, devices)
        search = OneStageSearch(config, dataset, devices)
        state, found = _search(search, session)
        coefficients = jnp.asarray(found["coefficients"])
        net = target_net(config, config.train, dataset, Genotype.from_dict(found["genotype"]))
        task = TrainTask(config, dataset, devices, net, name="train", coefficients=coefficients)
        start = switch(state, search, task)
        training = once(session, Phase("train"), lambda: _train(task, start, coefficients, session))
        result = {
            "schedule": config.schedule,
            **accuracies([training]),
            "genotype": found["genotype"],
            "parameters": task.parameters,
            "absorption_difference": training["absorption_difference"],
            "absorption_warning": training.get("absorption_warning"),
            "search": found,
            "seconds": {"search": add_seconds([found]), "train": add_seconds([training])},
        }
        return write_result(session, result)


def _search(search: OneStageSearch, session: Session) -> tuple[SearchState, dict]:
    """Search until all nodes are frozen, or the epochs are over."""
    state, seconds = search.fit(0, session)  # if the search has ended, its last state
    open_nodes = int(np.sum(~np.asarray(state.arch.frozen)))
    found = once(
        session,
        search.phase,
        lambda: search.result(state, seconds) | {"frozen_by_limit": open_nodes},
    )
    found = read_search(found, session.config)
    if open_nodes:
        session.say(
            f"{search.name}: after {found['epochs']} epochs {open_nodes} nodes are still moving; "
            "they are frozen as they are"
        )
    genotype = Genotype.from_dict(found["genotype"])
    net = target_net(search.config, search.config.train, search.dataset, genotype)
    write_architecture(session, net, found["coefficients"])
    session.say(
        f"{search.name}: the architecture is fixed after {found['epochs']} epochs, training goes "
        f"on with the static net\n{describe_cells(genotype)}"
    )
    return state, found


def switch(state: SearchState, search: OneStageSearch, task: TrainTask) -> TrainState:
    """Take active weights, momentum and statistics from the super-net to the static net."""
    supports = task.net.genotype.supports(
        search.net.space
    )  # as recovered last, after the state's last step
    before = jax.device_get(state.weights)
    select = lambda tree: select_params(tree, search.net, supports)  # noqa: E731
    params = select(before.params)
    stats = select_stats(before.stats, search.net, supports)
    momentum = select(optax.tree_utils.tree_get(before.sgd, "trace"))
    task.begin(0)
    start = TrainState.create({"params": params, "batch_stats": stats}, task.sgd, task.seed)
    return start.replace(sgd=optax.tree_utils.tree_set(start.sgd, trace=momentum))


def _train(
    task: TrainTask,
    start: TrainState,
    coefficients: Float[Array, "cells nodes s"],
    session: Session,
) -> dict:
    """Train with the architecture fixed, absorb, and read the test split, the only time.

    The network is saved before it is judged: a comparison that fails is told and recorded, and
    costs nobody a finished training.
    """
    state, seconds = fit(task, start, session)
    after = jax.device_get(state)
    after = after.replace(params=absorb(task.net, after.params, coefficients))
    absorbed = make_trained(task.net, after.params, after.stats, task.dataset)
    save_trained(session.workdir.path, absorbed)
    found = compare_logits(task, state, absorbed, coefficients)
    warning = None if found.holds else f"absorption changes the logits {found}"
    session.say(
        f"{task.name}: the coefficients are in the batch norms, logits differ "
        f"{found.difference:.1e}" + (f"\nwarning: {warning}" if warning else "")
    )
    plain = TrainTask(task.config, task.dataset, task.devices, task.net, name="train")
    test = plain.evaluate(task.devices.replicate(after), task.dataset.test())
    result = {"seed": task.seed, **task.origin, "seconds": seconds}
    result |= {"absorption_difference": found.difference, "absorption_warning": warning}
    return result | {f"test_{key}": value for key, value in test.items()}


def compare_logits(
    task: TrainTask, state: TrainState, absorbed: Trained, coefficients
) -> Agreement:
    """Compare logits, in evaluation mode, with coefficients and after absorption."""
    dataset = task.dataset
    some = np.arange(min(COMPARED, len(dataset.train)))
    images, _ = next(dataset.train.batches([some], seed=None))
    x = normalise(images, dataset.mean, dataset.std)
    params, stats = jax.device_get((state.params, state.stats))
    params = {k: v for k, v in params.items() if k != "auxiliary"}
    stats = {k: v for k, v in stats.items() if k != "auxiliary"}
    net = absorbed.net

    def logits(x):
        before = net.apply(
            {"params": params, "batch_stats": stats}, x, train=False, coefficients=coefficients
        )
        after = net.apply(absorbed.variables, x, train=False)
        return before[0], after[0]

    before, after = jax.jit(task.devices.traced(logits, agreement.PRECISION))(x)
    return agreement.compare(after, before, net.dtype)
