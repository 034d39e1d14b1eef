"""One step of training and of evaluation: pure functions for `parallel.Devices.map`.

Arrays are positional: the state, then batches of uint8 images and labels, one device's part of
them. What is fixed for a run is keyword-only.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int, UInt8

from istanas_jax.augment import augment, draw, normalise
from istanas_jax.parallel import AXIS, own_part
from istanas_jax.target_net import TargetNet, draw_paths
from istanas_jax.train_state import TestTotals, Totals, TrainState


@dataclass(frozen=True)
class Recipe:
    """How a phase sees its images and what it minimises."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    pad: int
    flip: bool
    cutout: int
    label_smoothing: float
    auxiliary_weight: float
    drop_path: float  # reached linearly at `total_steps`
    sync_norms: bool  # batch statistics over all devices, or of each alone
    accumulate: int  # parts that a device sees its batch in, one after the other
    total_steps: int
    color_jitter: tuple[float, ...] = ()  # brightness, contrast, saturation, hue

    @property
    def norm_axis(self) -> str | None:
        return AXIS if self.sync_norms else None

    def draw(self, key: jax.Array, images: UInt8[Array, "B H W C"]) -> Float[Array, "B draws"]:
        """At random, for `look`; every image its own, whatever the number of devices."""
        return own_part(draw(key, len(images) * lax.axis_size(AXIS), jitter=any(self.color_jitter)))

    def look(
        self, draws: Float[Array, "B draws"], images: UInt8[Array, "B H W C"]
    ) -> Float[Array, "B H W C"]:
        """Augmented and normalised."""
        return augment(
            draws,
            images,
            mean=self.mean,
            std=self.std,
            pad=self.pad,
            flip=self.flip,
            cutout=self.cutout,
            color_jitter=self.color_jitter,
        )

    def gradient(self, loss_of, wrt, stats, batch: tuple[Array, ...]):
        """Of `loss_of(wrt, stats, *batch) -> loss, (logits, stats)`, averaged over all devices.

        A batch in several parts is treated as if each were on a device of its own: statistics of
        their own unless synchronised, and the mean of what these make of the running ones.
        """
        gradient = jax.value_and_grad(loss_of, has_aux=True)
        n = self.accumulate
        if n == 1:
            (loss, (logits, stats)), grads = gradient(wrt, stats, *batch)
        else:
            parts = jax.tree.map(lambda x: x.reshape(n, -1, *x.shape[1:]), batch)

            def add(sums, part):
                (loss, (logits, moved)), grads = gradient(wrt, stats, *part)
                return jax.tree.map(jnp.add, sums, (loss, moved, grads)), logits

            zero = jax.tree.map(jnp.zeros_like, (jnp.float32(0), stats, wrt))
            sums, logits = lax.scan(add, zero, parts)
            loss, stats, grads = jax.tree.map(lambda x: x / n, sums)
            logits = logits.reshape(-1, logits.shape[-1])
        loss, stats, grads = lax.pmean((loss, stats, grads), AXIS)
        return loss, logits, stats, grads

    def loss(self, outputs, labels: Int[Array, " B"]) -> Float[Array, ""]:
        """Cross-entropy, of the auxiliary head too if there is one."""
        logits, auxiliary = outputs
        value = self._cross_entropy(logits, labels)
        if auxiliary is not None:
            value += self.auxiliary_weight * self._cross_entropy(auxiliary, labels)
        return value

    def _cross_entropy(self, logits, labels):
        logits = logits.astype(jnp.float32)
        targets = jax.nn.one_hot(labels, logits.shape[-1])
        targets = optax.smooth_labels(targets, self.label_smoothing)
        return optax.softmax_cross_entropy(logits, targets).mean()


def train_step(
    state: TrainState,
    images: UInt8[Array, "B H W C"],
    labels: Int[Array, " B"],
    *,
    net: TargetNet,
    sgd: optax.GradientTransformation,
    recipe: Recipe,
    coefficients: Float[Array, "cells nodes s"] | None = None,
) -> tuple[TrainState, Totals]:
    """One update of the weights of a network whose architecture is known.

    coefficients: of its connections, where they are not absorbed yet.
    """
    draws, paths = recipe.draw(state.key(0), images), None
    if recipe.drop_path:
        rate = recipe.drop_path * state.step / recipe.total_steps
        whole = len(images) * lax.axis_size(AXIS)
        paths = own_part(draw_paths(net, state.key(1), rate, whole))

    def loss_of_w(params, stats, draws, images, labels, paths):
        outputs, moved = net.apply(
            {"params": params, "batch_stats": stats},
            recipe.look(draws, images),
            train=True,
            coefficients=coefficients,
            paths=paths,
            axis_name=recipe.norm_axis,
            mutable="batch_stats",
        )
        return recipe.loss(outputs, labels), (outputs[0], moved["batch_stats"])

    loss, logits, stats, dw = recipe.gradient(
        loss_of_w, state.params, state.stats, (draws, images, labels, paths)
    )
    change, moved = sgd.update(dw, state.sgd, state.params)
    batch = batch_totals(loss, logits, labels)
    return state.advance(optax.apply_updates(state.params, change), stats, moved, batch), batch


def evaluate_target(
    state: TrainState,
    images: UInt8[Array, "B H W C"],
    labels: Int[Array, " B"],
    mask: Float[Array, " B"],
    *,
    net: TargetNet,
    recipe: Recipe,
    coefficients: Float[Array, "cells nodes s"] | None = None,
) -> TestTotals:
    """Loss and accuracy with the running statistics, of images whose mask is 1."""
    x = normalise(images, recipe.mean, recipe.std)
    variables = {"params": state.params, "batch_stats": state.stats}
    logits, _ = net.apply(variables, x, train=False, coefficients=coefficients)
    return masked_totals(logits, labels, mask)


def batch_totals(loss: Float[Array, ""], logits, labels) -> Totals:
    """Of a training batch; the loss is the mean over all devices already."""
    hits = label_rank(logits, labels) == 0
    correct = lax.psum(jnp.sum(hits).astype(jnp.float32), AXIS)
    images = jnp.float32(len(labels) * lax.axis_size(AXIS))
    return Totals(loss * images, correct, images)


def masked_totals(logits, labels, mask) -> TestTotals:
    """Of the images whose mask is 1."""
    logits = logits.astype(jnp.float32)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    rank = label_rank(logits, labels)
    sums = (jnp.sum(x * mask) for x in (losses, rank < 1, jnp.ones_like(mask), rank < 5))
    return lax.psum(TestTotals(*sums), AXIS)


def label_rank(logits: Float[Array, "B classes"], labels: Int[Array, " B"]) -> Int[Array, " B"]:
    """How many classes come before the label when classes are sorted by logits, the largest first.

    Of equal classes the first comes first. Where a logit is NaN nothing is known, and the label
    counts as past all classes, however few there are.
    """
    own = jnp.take_along_axis(logits, labels[:, None], -1)
    earlier = jnp.arange(logits.shape[-1])[None] < labels[:, None]
    before = jnp.sum((logits > own) | ((logits == own) & earlier), -1)
    return jnp.where(jnp.isnan(logits).any(-1), jnp.iinfo(before.dtype).max, before)
