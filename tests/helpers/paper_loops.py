"""Algorithms 1 and 2 as loops written from the paper, in float64, for nets of one cell.

A loop knows the network only as a function from support, coefficients and W to a loss, all
candidates of it run (`dense`); scikit-learn solves the LASSO; SGD and Adam are written out.
"""

import jax
import numpy as np
import optax

from istanas_jax.bench.recovery import oracle
from istanas_jax.networks.supernet.net import keep_inactive


class TwoStageLoop:
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
        """Gradients of W and of the coefficients; each device has batch norms of its own."""
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


class OneStageLoop(TwoStageLoop):
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
