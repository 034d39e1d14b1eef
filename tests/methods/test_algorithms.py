"""Algorithm 1 step by step: a search against a loop written from the paper, in float64.

The loop knows the network only as a function from support, coefficients and W to a loss, all
candidates of it run (`dense`); scikit-learn solves the LASSO; SGD and Adam are written out.
"""

import jax
import numpy as np
import optax
import pytest
from places import ROOT
from tiny_runs import PAPER

from istanas_jax.bench.recovery import oracle
from istanas_jax.config.files import load_config
from istanas_jax.networks.supernet import keep_inactive
from istanas_jax.runs.session import open_session
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.search import TwoStageSearch
from istanas_jax.space.genotype import Genotype

pytestmark = pytest.mark.slow

TINY = [
    *PAPER,
    "architecture.nodes=2",
    "search.cells=1",
    "train.cells=1",
    "search.epochs=3",
    "search.batch=16",
    "search.ista.adam.learning_rate=0.05",
    "data.max_images=80",
    "data.pad=0",
]


def config_of(*overrides):
    spec = str(ROOT / "configs" / "digits.py:tiny")
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
        z = np.zeros(self.A.shape[:2] + self.A.shape[3:])
        for place in np.ndindex(z.shape[:2]):
            z[place] = oracle(self.A[place], self.b[place], self.config.search.ista.lam)
        self.support = np.argsort(-np.abs(z), -1, kind="stable")[..., :2].astype(np.int32)
        self.z_S = np.take_along_axis(z, self.support, -1)
        self.supports.append(np.sort(self.support))

    def coefficients(self) -> np.ndarray:
        """Eq. (network_s): w_S = bᵀA_S - z_SᵀE_SS."""
        A_S = np.take_along_axis(self.A, self.support[:, :, None, :], -1)
        E_SS = np.einsum("cjms,cjmt->cjst", A_S, A_S) - np.eye(2)
        return np.einsum("cjm,cjms->cjs", self.b, A_S) - np.einsum("cjs,cjst->cjt", self.z_S, E_SS)

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
        settings = self.config.search.weights
        norm = np.sqrt(sum(np.sum(g**2) for g in jax.tree.leaves(dW)))
        scale = min(1, settings.max_gradient_norm / norm)
        total = self.task.epochs * self.task.steps_per_epoch
        first, last = settings.learning_rate, settings.final_learning_rate
        rate = last + (first - last) * (1 + np.cos(np.pi * step / total)) / 2
        momentum = jax.tree.map(
            lambda v, g, w: settings.momentum * v + scale * g + settings.weight_decay * w,
            self.momentum,
            dW,
            self.W,
        )
        W = jax.tree.map(lambda w, v: w - rate * v, self.W, momentum)
        active = jax.tree.map(np.zeros_like, W), jax.tree.map(np.ones_like, W)
        mask = keep_inactive(self.task.net, self.support, *active)
        choose = lambda m, new, old: np.where(np.asarray(m) > 0, new, old)  # noqa: E731
        self.W = jax.tree.map(choose, mask, W, self.W)
        self.momentum = jax.tree.map(choose, mask, momentum, self.momentum)

    def update_b(self, images, labels):
        """Line 5: Adam on b, which the coefficients pass their gradient to by bᵀA_S."""
        _, dw = self.gradients(images, labels)
        A_S = np.take_along_axis(self.A, self.support[:, :, None, :], -1)
        settings = self.config.search.ista.adam
        g = np.einsum("cjms,cjs->cjm", A_S, dw) + settings.weight_decay * self.b
        mean, square, count = self.adam
        mean = settings.b1 * mean + (1 - settings.b1) * g
        square = settings.b2 * square + (1 - settings.b2) * g * g
        count += 1
        unbiased = mean / (1 - settings.b1**count), square / (1 - settings.b2**count)
        self.b = self.b - settings.learning_rate * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
        self.adam = [mean, square, count]


@pytest.mark.parametrize(("every", "first"), [("step", "w"), ("epoch", "b")])
def test_search_is_algorithm_1(every, first, tmp_path):
    """To the letter (every step, W first), and as the release has it (every epoch, b first)."""
    config = config_of(f"search.ista.recovery.every={every}", f"search.ista.first_update={first}")
    with open_session(config, tmp_path) as session:
        target = target_net(config, config.train, session.dataset)
        task = TwoStageSearch(config, session.dataset, session.devices, target)
        task.begin(0)
        expected = PaperLoop(task, config)
        supports = expected.run()
        seen = []
        outcome = task.method.outcome

        def look(search, state):
            seen.append(jax.device_get(state))
            return outcome(search, state)

        task.method.outcome = look
        found = task.run(0, session)
    state = seen[0]
    assert len({str(support) for support in supports}) > 1  # something was decided
    steps = 3 * task.steps_per_epoch
    assert len(supports) == (steps if every == "step" else 3) + 1
    # float32 against float64 over a few steps; b moves by 0.05 a step, W by far less.
    np.testing.assert_allclose(state.arch.b, expected.b, atol=5e-4)
    largest = max(np.abs(w).max() for w in jax.tree.leaves(expected.W))
    for ours, theirs in zip(
        jax.tree.leaves(state.weights.params), jax.tree.leaves(expected.W), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-3 * largest)
    assert not state.arch.frozen.any()
    genotype = Genotype.from_dict(found["genotype"]).supports()
    assert np.array_equal(np.sort(genotype), supports[-1])
