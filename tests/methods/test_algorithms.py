"""Algorithms 1 and 2 step by step: searches against loops written from the paper, in float64.

A loop knows the network only as a function from support, coefficients and W to a loss, all
candidates of it run (`dense`); scikit-learn solves the LASSO; SGD and Adam are written out.
"""

import itertools

import jax
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict
from places import ROOT
from tiny_runs import PAPER, rows

from istanas_jax.bench.recovery import oracle
from istanas_jax.config.files import load_config
from istanas_jax.networks.supernet import keep_inactive
from istanas_jax.runs.folder import REPLAY
from istanas_jax.runs.session import open_session
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.search import OneStageSearch, TwoStageSearch
from istanas_jax.space.genotype import Genotype

pytestmark = pytest.mark.slow

TINY = [
    "architecture.nodes=2",
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


class PaperLoop:
    """Two-stage ISTA-NAS, Algorithm 1, line by line, from the start of a real search."""

    def __init__(self, task, config):
        self.task, self.config = task, config
        state = jax.device_get(task.start())
        wide = lambda tree: jax.tree.map(lambda x: np.asarray(x, np.float64), tree)  # noqa: E731
        self.W, self.b, self.A = (
            wide(state.weights.params),
            *map(wide, (state.arch.b, state.arch.A)),
        )
        self.stats = wide(state.weights.stats)
        self.momentum = jax.tree.map(np.zeros_like, self.W)
        self.adam = [np.zeros_like(self.b), np.zeros_like(self.b), 0]
        self.supports, self.gradient = [], None
        self.z = np.zeros(self.A.shape[:2] + self.A.shape[3:])
        self.support = np.zeros((*self.A.shape[:2], 2), np.int32)
        self.frozen = np.zeros(self.A.shape[:2], bool)  # Algorithm 1 knows no frozen nodes

    def run(self) -> list[np.ndarray]:
        """All supports that were recovered, the final one last."""
        task, every = self.task, {"epoch": self.task.steps_per_epoch, "step": 1}
        every = every[self.config.search.ista.recovery.every]
        step = 0
        for epoch in range(task.epochs):
            for b_images, b_labels, w_images, w_labels in task.batches(epoch, 0):
                if step % every == 0:
                    self.recover()
                lines = [
                    lambda w=(w_images, w_labels), s=step: self.update_w(*w, s),
                    lambda b=(b_images, b_labels): self.update_b(*b),
                ]
                if self.config.search.ista.first_update == "b":
                    lines.reverse()
                for line in lines:
                    line()
                step += 1
        self.recover()  # "according to the final S(z)"
        return self.supports

    def recover(self):
        """Line 2: z by the LASSO, its two largest magnitudes."""
        for place in zip(*np.nonzero(~self.frozen), strict=True):
            z = oracle(self.A[place], self.b[place], self.config.search.ista.lam)
            self.z[place], self.support[place] = z, np.argsort(-np.abs(z), kind="stable")[:2]
        self.supports.append(np.sort(self.support))

    def coefficients(self) -> np.ndarray:
        """Eq. (network_s): w_S = bᵀA_S - z_SᵀE_SS."""
        A_S = np.take_along_axis(self.A, self.support[:, :, None, :], -1)
        E_SS = np.einsum("cjms,cjmt->cjst", A_S, A_S) - np.eye(2)
        z_S = np.take_along_axis(self.z, self.support, -1)
        return np.einsum("cjm,cjms->cjs", self.b, A_S) - np.einsum("cjs,cjst->cjt", z_S, E_SS)

    def gradients(self, images, labels):
        """Of W and of the coefficients; each device has batch norms of its own."""
        dataset, parts = self.task.dataset, len(jax.devices())
        x = (images / 255.0 - dataset.mean) / dataset.std

        def loss(W, w_S, support, x, labels):
            (logits, _), _ = self.task.net.apply(
                {"params": W, "batch_stats": self.stats},
                x,
                support,
                w_S,
                train=True,
                dense=True,
                mutable="batch_stats",
            )
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        with jax.enable_x64(True):
            if self.gradient is None:
                self.gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
            of_parts = [
                jax.device_get(self.gradient(self.W, self.coefficients(), self.support, *part))
                for part in zip(np.split(x, parts), np.split(labels, parts), strict=True)
            ]
        return jax.tree.map(lambda *grads: sum(grads) / parts, *of_parts)

    def update_w(self, images, labels, step: int):
        """Line 4: clipped SGD with momentum and decay on W_(S), along a cosine."""
        dW, _ = self.gradients(images, labels)
        self.descend(dW, self.rate(step))

    def rate(self, step: int) -> float:
        settings, total = self.config.search.weights, self.task.epochs * self.task.steps_per_epoch
        first, last = settings.learning_rate, settings.final_learning_rate
        return last + (first - last) * (1 + np.cos(np.pi * step / total)) / 2

    def trained(self):
        """Where W_(S) is, as a tree of ones and zeros."""
        everywhere = jax.tree.map(np.ones_like, self.W)
        nowhere = jax.tree.map(np.zeros_like, self.W)
        return keep_inactive(self.task.net, self.support, nowhere, everywhere)

    def descend(self, dW, rate: float):
        settings, mask = self.config.search.weights, self.trained()
        dW = jax.tree.map(lambda m, g: np.asarray(m) * g, mask, dW)
        norm = np.sqrt(sum(np.sum(g**2) for g in jax.tree.leaves(dW)))
        scale = min(1, settings.max_gradient_norm / norm)
        momentum = jax.tree.map(
            lambda v, g, w: settings.momentum * v + scale * g + settings.weight_decay * w,
            self.momentum,
            dW,
            self.W,
        )
        W = jax.tree.map(lambda w, v: w - rate * v, self.W, momentum)
        choose = lambda m, new, old: np.where(np.asarray(m) > 0, new, old)  # noqa: E731
        self.W = jax.tree.map(choose, mask, W, self.W)
        self.momentum = jax.tree.map(choose, mask, momentum, self.momentum)

    def update_b(self, images, labels):
        """Line 5: Adam on b, which the coefficients pass their gradient to by bᵀA_S."""
        _, dw = self.gradients(images, labels)
        self.move_b(dw)

    def move_b(self, dw):
        A_S = np.take_along_axis(self.A, self.support[:, :, None, :], -1)
        settings = self.config.search.ista.adam
        g = np.einsum("cjms,cjs->cjm", A_S, dw) + settings.weight_decay * self.b
        mean, square, count = self.adam
        mean = settings.b1 * mean + (1 - settings.b1) * g
        square = settings.b2 * square + (1 - settings.b2) * g * g
        count += 1
        unbiased = mean / (1 - settings.b1**count), square / (1 - settings.b2**count)
        b = self.b - settings.learning_rate * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
        self.b = np.where(self.frozen[..., None], self.b, b)
        self.adam = [mean, square, count]


class OneStageLoop(PaperLoop):
    """One-stage ISTA-NAS, Algorithm 2, up to the epoch after which all nodes are frozen."""

    # The edges of a reduction cell, the only one of a net with one cell: the nodes they lead to.
    NODES = {"edges_from_inputs": [0, 0, 1, 1], "edges_from_nodes": [1]}  # noqa: RUF012

    def run(self) -> list[dict]:
        """z, support and frozen nodes before each epoch and at the end."""
        self.recover()
        standing, step = [self.row()], 0
        for epoch in range(self.task.epochs):
            before = self.settled()
            for images, labels in self.task.batches(epoch, 0):
                dW, dw = self.gradients(images, labels)  # of one loss
                self.descend(dW, self.config.search.weights.learning_rate)
                self.move_b(dw)
                step += 1
            self.recover()
            if step == self.task.epochs * self.task.steps_per_epoch:
                break  # the limit: nothing freezes any more
            distance = np.sqrt(np.sum((self.settled() - before) ** 2, -1))
            self.freeze(distance)
            standing.append(self.row())
            if self.frozen.all():
                break
        return standing

    def row(self) -> dict:
        return {name: np.copy(getattr(self, name)) for name in ("z", "support", "frozen")}

    def settled(self) -> np.ndarray:
        """Line 5 is about the entries that are kept, the release about all of z."""
        if self.config.search.ista.freeze.distance == "all":
            return self.z.copy()
        kept = np.zeros_like(self.z)
        z_S = np.take_along_axis(self.z, self.support, -1)
        np.put_along_axis(kept, self.support, z_S, -1)
        return kept

    def freeze(self, distance):
        settings = self.config.search.ista.freeze
        if settings.rule == "together":
            distance = np.full(distance.shape, np.sqrt(np.sum(distance**2)))
        self.frozen = self.frozen | (distance <= settings.epsilon)

    def trained(self):
        """Lines 6 and 7: scale and shift of the batch norms of frozen nodes only."""

        def choose(path, mask):
            names = [key.key for key in path]
            if names[0] == "cell_00" and names[-1].startswith(("scale", "shift")):
                nodes = self.frozen[1][self.NODES[names[1]]] if names[1] in self.NODES else 1
                return (np.asarray(mask).T * nodes).T
            return np.asarray(mask)

        return jax.tree.map_with_path(choose, super().trained())


def searched(task, session):
    """The last state of a search, and what it found."""
    seen, outcome = [], task.method.outcome

    def look(search, state):
        seen.append(jax.device_get(state))
        return outcome(search, state)

    task.method.outcome = look
    found = task.run(0, session)
    return seen[0], found


def assert_same(state, loop):
    """float32 against float64 over a few steps; b moves by 0.05 a step, W by far less."""
    np.testing.assert_allclose(state.arch.b, loop.b, atol=5e-4)
    largest = max(np.abs(w).max() for w in jax.tree.leaves(loop.W))
    for ours, theirs in zip(
        jax.tree.leaves(state.weights.params), jax.tree.leaves(loop.W), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-3 * largest)


@pytest.mark.parametrize(("every", "first"), [("step", "w"), ("epoch", "b")])
def test_search_is_algorithm_1(every, first, tmp_path):
    """To the letter (every step, W first), and as the release has it (every epoch, b first)."""
    changes = f"search.ista.recovery.every={every}", f"search.ista.first_update={first}"
    config = config_of("tiny", *PAPER, *changes)
    with open_session(config, tmp_path) as session:
        target = target_net(config, config.train, session.dataset)
        task = TwoStageSearch(config, session.dataset, session.devices, target)
        task.begin(0)
        expected = PaperLoop(task, config)
        supports = expected.run()
        state, found = searched(task, session)
    assert len({str(support) for support in supports}) > 1  # something was decided
    steps = 3 * task.steps_per_epoch
    assert len(supports) == (steps if every == "step" else 3) + 1
    assert_same(state, expected)
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
    assert_same(state, expected)
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
