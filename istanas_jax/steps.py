"""One step of search, of training and of evaluation: pure functions for `parallel.Devices.map`.

Arrays are positional: the state, then batches of uint8 images and labels, one device's part of
them. What is fixed for a run is keyword-only.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int, UInt8

from istanas_jax.architecture import (
    ArchState,
    coefficients,
    freeze,
    keep_support,
    move,
    recover,
)
from istanas_jax.augment import augment, draw, normalise
from istanas_jax.parallel import AXIS, own_part
from istanas_jax.supernet import SuperNet, keep_inactive
from istanas_jax.target_net import TargetNet, draw_paths
from istanas_jax.train_state import SearchState, TestTotals, Totals, TrainState


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
    batch = _totals(loss, logits, labels)
    return state.advance(optax.apply_updates(state.params, change), stats, moved, batch), batch


def search_step(
    state: SearchState,
    b_images: UInt8[Array, "B H W C"],
    b_labels: Int[Array, " B"],
    w_images: UInt8[Array, "B H W C"],
    w_labels: Int[Array, " B"],
    *,
    net: SuperNet,
    sgd: optax.GradientTransformation,
    adam: optax.GradientTransformation,
    recipe: Recipe,
    implicit_lam: float | None,
) -> tuple[SearchState, Totals]:
    """Algorithm 1, lines 3 and 4: an update of b on one batch, then of W_(S) on another."""
    weights, arch = state.weights, state.arch
    loss_of = partial(_super_loss, net=net, recipe=recipe, implicit_lam=implicit_lam)

    def loss_of_b(b, stats, *batch):
        return loss_of(weights.params, arch.replace(b=b), stats, *batch)

    b_batch = (recipe.draw(weights.key(0), b_images), b_images, b_labels)
    b_loss, b_logits, stats, db = recipe.gradient(loss_of_b, arch.b, weights.stats, b_batch)
    change, adam_state = adam.update(db, state.adam, arch.b)
    arch = move(arch, optax.apply_updates(arch.b, change))

    def loss_of_w(params, stats, *batch):
        return loss_of(params, arch, stats, *batch)

    w_batch = (recipe.draw(weights.key(1), w_images), w_images, w_labels)
    loss, logits, stats, dw = recipe.gradient(loss_of_w, weights.params, stats, w_batch)
    params, sgd_state = _update_active(net, state, dw, sgd)
    batch = _totals(loss, logits, w_labels)
    weights = weights.advance(params, stats, sgd_state, batch)
    b_totals = state.b_totals + _totals(b_loss, b_logits, b_labels)
    return state.replace(weights=weights, arch=arch, adam=adam_state, b_totals=b_totals), batch


def joint_step(
    state: SearchState,
    images: UInt8[Array, "B H W C"],
    labels: Int[Array, " B"],
    *,
    net: SuperNet,
    sgd: optax.GradientTransformation,
    adam: optax.GradientTransformation,
    recipe: Recipe,
    implicit_lam: float | None,
) -> tuple[SearchState, Totals]:
    """Algorithm 2, lines 3 to 7: b and W_(S) by one loss; what is frozen stands still."""
    weights, arch = state.weights, state.arch
    loss_of_super = partial(_super_loss, net=net, recipe=recipe, implicit_lam=implicit_lam)

    def loss_of(b_and_params, stats, *batch):
        b, params = b_and_params
        return loss_of_super(params, arch.replace(b=b), stats, *batch)

    batch = (recipe.draw(weights.key(0), images), images, labels)
    loss, logits, stats, (db, dw) = recipe.gradient(
        loss_of, (arch.b, weights.params), weights.stats, batch
    )
    change, adam_state = adam.update(db, state.adam, arch.b)
    moved_arch = move(arch, optax.apply_updates(arch.b, change))
    params, sgd_state = _update_active(net, state, dw, sgd, frozen=arch.frozen)
    totals = _totals(loss, logits, labels)
    weights = weights.advance(params, stats, sgd_state, totals)
    return state.replace(weights=weights, arch=moved_arch, adam=adam_state), totals


def _super_loss(
    params, arch: ArchState, stats, draws, images, labels, *, net, recipe: Recipe, implicit_lam
):
    """Of the active connections in training; with it the logits and the moved statistics."""
    outputs, moved = net.apply(
        {"params": params, "batch_stats": stats},
        recipe.look(draws, images),
        arch.support,
        coefficients(arch, implicit_lam=implicit_lam),
        train=True,
        axis_name=recipe.norm_axis,
        mutable="batch_stats",
    )
    return recipe.loss(outputs, labels), (outputs[0], moved["batch_stats"])


def _update_active(net: SuperNet, state: SearchState, dw, sgd, frozen=None):
    """SGD on the active weights; the others, and their momentum, stand still."""
    weights = state.weights
    change, moved = sgd.update(dw, weights.sgd, weights.params)
    updated = optax.apply_updates(weights.params, change)
    before, after = (weights.params, weights.sgd), (updated, moved)
    return keep_inactive(net, state.arch.support, before, after, frozen=frozen)


def recovery_step(
    state: SearchState, disturbance: Float[Array, ""], *, lam: float
) -> tuple[SearchState, dict[str, Array]]:
    """Algorithm 1, line 2: z and its support from b. Also what a person wants to know of it.

    Every device does it by itself, and all must come to the same; the disturbance, added to b, is
    0 but in a test that makes one device come to something else.
    """
    recovery = recover(state.arch.replace(b=state.arch.b + disturbance), lam=lam)
    uncertified = jnp.where(recovery.certified, 0, state.uncertified + 1)
    before = jnp.sort(state.arch.support, -1)
    changed = jnp.any(jnp.sort(recovery.arch.support, -1) != before, -1)
    report = {
        "changed": changed.sum(),
        "uncertified": uncertified,
        "kkt": jnp.where(state.arch.frozen, 0, recovery.code.kkt),
        "distance": recovery.distance,
        "before": state.arch.support,
        "supports": lax.all_gather(recovery.arch.support, AXIS),
    }
    return state.replace(arch=recovery.arch, uncertified=uncertified), report


def snapshot(arch: ArchState) -> dict[str, Array]:
    """Of the architecture, what a replay of the search shows."""
    return {
        "z": arch.z,
        "support": arch.support,
        "coefficients": coefficients(arch),
        "frozen": arch.frozen,
    }


def epoch_step(state: SearchState, *, epsilon: float) -> tuple[SearchState, Float[Array, "c n"]]:
    """Between epochs: freeze the nodes whose z stood still; the distance that each z went."""
    z = keep_support(state.arch.z, state.arch.support)
    difference = z - state.z_epoch
    distance = jnp.sqrt(jnp.sum(difference * difference, -1))
    arch = freeze(state.arch, distance, epsilon) if epsilon > 0 else state.arch
    return state.replace(arch=arch, z_epoch=z), distance


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
    return _masked(logits, labels, mask)


def evaluate_super(
    state: SearchState,
    images: UInt8[Array, "B H W C"],
    labels: Int[Array, " B"],
    mask: Float[Array, " B"],
    *,
    net: SuperNet,
    recipe: Recipe,
) -> TestTotals:
    """The same for the super-net with the support it has."""
    x = normalise(images, recipe.mean, recipe.std)
    variables = {"params": state.weights.params, "batch_stats": state.weights.stats}
    w = coefficients(state.arch)
    logits, _ = net.apply(variables, x, state.arch.support, w, train=False)
    return _masked(logits, labels, mask)


def _totals(loss: Float[Array, ""], logits, labels) -> Totals:
    """Of a training batch; the loss is the mean over all devices already."""
    correct = lax.psum(jnp.sum(logits.argmax(-1) == labels).astype(jnp.float32), AXIS)
    images = jnp.float32(len(labels) * lax.axis_size(AXIS))
    return Totals(loss * images, correct, images)


def _masked(logits, labels, mask) -> TestTotals:
    logits = logits.astype(jnp.float32)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    likelier = logits > jnp.take_along_axis(logits, labels[:, None], -1)
    hits = logits.argmax(-1) == labels
    sums = (jnp.sum(x * mask) for x in (losses, hits, jnp.ones_like(mask), likelier.sum(-1) < 5))
    return lax.psum(TestTotals(*sums), AXIS)
