"""Whole runs of both schedules with cheap steps, and their arrays as orbax reads them."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from jax import lax
from places import ROOT
from tiny_runs import PAPER

from istanas_jax.config.files import load_config
from istanas_jax.devices.parallel import AXIS
from istanas_jax.methods.contract import Method
from istanas_jax.schedules import one_stage, search, training, two_stage
from istanas_jax.sparse_coding.architecture import ArchState, move
from istanas_jax.training import states
from istanas_jax.training.states import Totals

SMALL = [
    "space.nodes=2",
    "search.cells=2",
    "search.epochs=4",
    "checkpoint.every_steps=2",
    "checkpoint.keep_last=50",
]
LAM = 1e-5


def config(variant, *overrides):
    spec = str(ROOT / "configs" / f"digits.py:{variant}")
    return load_config(spec, [f"--config.{override}" for override in [*SMALL, *overrides]])


def some_totals():
    return Totals(jnp.float32(24), jnp.float32(4), jnp.float32(16))


def cheap_search(state, *batch, sgd, adam, **rest):
    """A step whose gradient is b and W themselves, and which turns one node in its first steps."""
    weights, arch = state.weights, state.arch
    change, moved = sgd.update(weights.params, weights.sgd, weights.params)
    params = optax.apply_updates(weights.params, change)
    weights = weights.advance(params, weights.stats, moved, some_totals())
    _, adam_state = adam.update(arch.b, state.adam, arch.b)
    push = jnp.where(state.step < 5, 0.3, 0.0) * jnp.where(jnp.arange(7) % 2, -1.0, 1.0)
    b = arch.b.at[0, 0].add(push * (1.0 + state.step))
    state = state.replace(weights=weights, arch=move(arch, b), adam=adam_state)
    return state.replace(b_totals=some_totals()), some_totals()


def cheap_train(state, *batch, sgd, **rest):
    change, moved = sgd.update(state.params, state.sgd, state.params)
    params = optax.apply_updates(state.params, change)
    return state.advance(params, state.stats, moved, some_totals()), some_totals()


def cheap_evaluation(state, images, labels, mask, **rest):
    count = lax.psum(mask.sum(), AXIS)
    return states.TestTotals(count, 0.25 * count, count, 0.5 * count)


def make_runs(folder: Path) -> Path:
    """Whole runs of both schedules, of which only the steps are cheaper than real ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search.OneStageSearch, "update", staticmethod(cheap_search))
        patch.setattr(Method, "update", staticmethod(cheap_search))
        patch.setattr(search, "evaluate_search", cheap_evaluation)
        patch.setattr(training, "train_step", cheap_train)
        patch.setattr(training, "evaluate", cheap_evaluation)
        short = ["train.cells=2", "train.epochs=1"]
        freezing = "search.ista.freeze.epsilon=0.05"
        one = config("one_stage_tiny", *short, "data.max_images=70", freezing)
        one_stage.run(one, folder / "one")
        two = config("tiny", *PAPER, *short, "data.max_images=140")
        two_stage.run(two, folder / "two")
    return folder


def by_orbax(step) -> dict[str, np.ndarray]:
    """All arrays of a step by dotted names."""
    tree = ocp.StandardCheckpointer().restore(step / "state")
    flat = jax.tree_util.tree_flatten_with_path(tree)[0]
    named = {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in flat}
    return {name: np.asarray(x) for name, x in named.items()}


def arch_of(arrays) -> ArchState:
    return ArchState(
        **{field: arrays[f"arch.{field}"] for field in ["b", "A", "z", "support", "frozen"]}
    )
