"""Algorithms 1 and 2 step by step: searches against loops written from the paper."""

import itertools

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from paper_loops import OneStageLoop, TwoStageLoop
from places import ROOT
from tiny_runs import PAPER, rows

from istanas_jax.config.files import load_config
from istanas_jax.runs.folder import REPLAY
from istanas_jax.runs.session import open_session
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.search import OneStageSearch, TwoStageSearch
from istanas_jax.space.genotype import Genotype

pytestmark = pytest.mark.slow

TINY = [
    "space.nodes=2",
    "search.cells=1",
    "train.cells=1",
    "search.epochs=3",
    "search.batch=16",
    "search.ista.adam.learning_rate=0.05",
    "data.max_images=80",
    "data.pad=0",
]


def config_of(variant, *overrides):
    spec = str(ROOT / "configs" / f"digits.py:{variant}")
    return load_config(spec, [f"--config.{override}" for override in [*TINY, *overrides]])


def searched(task, session):
    """The last state of a search, and what it found."""
    seen, outcome = [], task.method.outcome

    def look(search, state):
        seen.append(jax.device_get(state))
        return outcome(search, state)

    task.method.outcome = look
    found = task.run(0, session)
    return seen[0], found


def assert_same(state, loop, *, b, w):
    """float32 against float64; tolerances of b and, relative to the largest weight, of W."""
    np.testing.assert_allclose(state.arch.b, loop.b, atol=b)
    largest = max(np.abs(weights).max() for weights in jax.tree.leaves(loop.W))
    for ours, theirs in zip(
        jax.tree.leaves(state.weights.params), jax.tree.leaves(loop.W), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=w * largest)


@pytest.mark.parametrize(("every", "first"), [("step", "w"), ("epoch", "b")])
def test_search_is_algorithm_1(every, first, tmp_path):
    """To the letter (every step, W first), and as the release has it (every epoch, b first)."""
    changes = f"search.ista.recovery.every={every}", f"search.ista.first_update={first}"
    config = config_of("tiny", *PAPER, *changes)
    with open_session(config, tmp_path) as session:
        target = target_net(config, config.train, session.dataset)
        task = TwoStageSearch(config, session.dataset, session.devices, target)
        task.begin(0)
        expected = TwoStageLoop(task, config)
        supports = expected.run()
        state, found = searched(task, session)
    assert len({str(support) for support in supports}) > 1  # something was decided
    steps = 3 * task.steps_per_epoch
    assert len(supports) == (steps if every == "step" else 3) + 1
    # A few steps; b moves by 0.05 in each, W by far less.
    assert_same(state, expected, b=5e-4, w=1e-3)
    assert not state.arch.frozen.any()
    genotype = Genotype.from_dict(found["genotype"]).supports()
    assert np.array_equal(np.sort(genotype), supports[-1])


# With all of z the reduction cell's second node freezes an epoch before its first; "kept" in its
# place would freeze both at once, and "all" in place of "kept" would not end the other search then.
FREEZING = {
    ("node", "all", 0.09): [0, 0, 0, 3, 4],  # frozen nodes before each epoch, and at the end
    ("together", "kept", 0.13): [0, 0, 0, 4],
}


@pytest.mark.parametrize(("rule", "distance", "epsilon"), FREEZING)
def test_search_is_algorithm_2(rule, distance, epsilon, tmp_path):
    """As the release freezes nodes, each by itself, and as the paper does, all together."""
    changes = {"rule": rule, "distance": distance, "epsilon": epsilon}
    config = config_of(
        "one_stage_tiny",
        "search.epochs=6",
        # b starts large and decays, so that z comes to rest within a few epochs.
        "search.ista.sigma=0.2",
        "search.ista.adam.weight_decay=0.3",
        *(f"search.ista.freeze.{key}={value}" for key, value in changes.items()),
    )
    with open_session(config, tmp_path) as session:
        task = OneStageSearch(config, session.dataset, session.devices)
        task.begin(0)
        expected = OneStageLoop(task, config)
        first = expected.W
        loop = expected.run()
        state, found = searched(task, session)
    between_epochs = [
        row for row in rows(tmp_path, REPLAY) if not row["step"] % task.steps_per_epoch
    ]
    frozen = [int(row["frozen"].sum()) for row in loop]
    assert frozen == FREEZING[rule, distance, epsilon]
    assert len({str(np.sort(row["support"])) for row in loop}) > 1  # something was decided
    for ours, theirs in zip(between_epochs, loop, strict=True):
        np.testing.assert_array_equal(ours["frozen"], theirs["frozen"])
        np.testing.assert_array_equal(np.sort(ours["support"]), np.sort(theirs["support"]))
        np.testing.assert_allclose(ours["z"], theirs["z"], atol=2e-3)
    assert state.arch.frozen.all() and found["epochs"] == len(loop) - 1 < task.epochs
    # Found to differ by 1e-6 after 16 steps.
    assert_same(state, expected, b=5e-5, w=5e-5)
    genotype = Genotype.from_dict(found["genotype"]).supports()
    assert np.array_equal(np.sort(genotype), np.sort(loop[-1]["support"]))
    for before, now in itertools.pairwise(loop):
        for name in ("z", "support"):  # of what is frozen: for good
            np.testing.assert_array_equal(
                now[name][before["frozen"]], before[name][before["frozen"]]
            )
    # Scales and shifts have moved on edges to a node that was frozen before the end, nowhere else.
    weights, moved = flatten_dict(state.weights.params), set()
    for path, start in flatten_dict(first).items():
        if path[1] in OneStageLoop.NODES and path[-1].startswith(("scale", "shift")):
            changed = np.any(weights[path] != start.astype(np.float32), -1)
            moved |= {OneStageLoop.NODES[path[1]][edge] for edge in np.flatnonzero(changed)}
    assert moved == ({1} if rule == "node" else set())
