"""One step of training and of evaluation: pure functions for `parallel.Devices.map`.

Arrays are positional: the state, then batches of uint8 images and labels, one device's part of
them. What is fixed for a run is keyword-only.
"""

from typing import Any

import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int, UInt8

from istanas_jax.data.augmentation import normalise
from istanas_jax.devices.parallel import AXIS, own_part
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.target_net import TargetNet, draw_paths
from istanas_jax.training import streams
from istanas_jax.training.objective import Recipe
from istanas_jax.training.optimizers import is_head
from istanas_jax.training.states import TestTotals, Totals, TrainState


def train_step(
    state: TrainState,
    images: UInt8[Array, "B H W C"],
    labels: Int[Array, " B"],
    *,
    net: TargetNet,
    sgd: optax.GradientTransformation,
    recipe: Recipe,
    coefficients: Float[Array, "cells nodes s"] | None = None,
    frozen: bool = False,
) -> tuple[TrainState, Totals]:
    """One update of the weights of a network whose architecture is known.

    Args:
      coefficients: weights of its connections, if they are not absorbed yet.
      frozen: only the head learns, from what the body gives in evaluation.
    """
    draws, paths = recipe.draw_augmentation(state.key(streams.IMAGES), images), None
    if recipe.drop_path and not frozen:
        rate = recipe.drop_path * state.step / recipe.total_steps
        whole = len(images) * lax.axis_size(AXIS)
        paths = own_part(draw_paths(net, state.key(streams.PATHS), rate, whole))

    def loss_of_w(params, stats, draws, images, labels, paths):
        if frozen:
            params = {k: v if is_head(k) else lax.stop_gradient(v) for k, v in params.items()}
        outputs, moved = net.apply(
            {"params": params, "batch_stats": stats},
            recipe.augment(draws, images),
            train=not frozen,
            coefficients=coefficients,
            paths=paths,
            axis_name=recipe.norm_axis,
            mutable="batch_stats",
        )
        return recipe.loss(outputs, labels), (outputs[0], moved["batch_stats"])

    loss, logits, stats, dw = recipe.mean_gradient(
        loss_of_w, state.params, state.stats, (draws, images, labels, paths)
    )
    change, moved = sgd.update(dw, state.sgd, state.params)
    batch = batch_totals(loss, logits, labels)
    return state.advance(optax.apply_updates(state.params, change), stats, moved, batch), batch


def evaluate(
    weights: TrainState,
    images: UInt8[Array, "B H W C"],
    labels: Int[Array, " B"],
    mask: Float[Array, " B"],
    *,
    net: TargetNet | SuperNet,
    recipe: Recipe,
    batch_statistics: bool = False,
    **inputs: Any,
) -> TestTotals:
    """Loss and accuracy of a network, summed over the images whose mask is 1.

    Args:
      batch_statistics: normalise by these images instead of by the running statistics.
      inputs: what the net runs with besides images.
    """
    (logits, _), _ = net.apply(
        {"params": weights.params, "batch_stats": weights.stats},
        normalise(images, recipe.mean, recipe.std),
        **inputs,
        train=batch_statistics,
        mutable="batch_stats",
    )
    return masked_totals(logits, labels, mask)


def batch_totals(loss: Float[Array, ""], logits, labels) -> Totals:
    """Sums of a training batch, whose loss is already the mean over all devices."""
    hits = label_rank(logits, labels) == 0
    correct = lax.psum(jnp.sum(hits).astype(jnp.float32), AXIS)
    images = jnp.float32(len(labels) * lax.axis_size(AXIS))
    return Totals(loss * images, correct, images)


def masked_totals(logits, labels, mask) -> TestTotals:
    """Sums over the images whose mask is 1."""
    logits = logits.astype(jnp.float32)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    rank = label_rank(logits, labels)
    sums = (jnp.sum(x * mask) for x in (losses, rank < 1, jnp.ones_like(mask), rank < 5))
    return lax.psum(TestTotals(*sums), AXIS)


def label_rank(logits: Float[Array, "B classes"], labels: Int[Array, " B"]) -> Int[Array, " B"]:
    """How many classes come before the label when classes are sorted by logits, the largest first.

    Among equal logits the first class comes first. Where a logit is NaN nothing is known, and the
    label counts as past all classes, however few there are.
    """
    own = jnp.take_along_axis(logits, labels[:, None], -1)
    earlier = jnp.arange(logits.shape[-1])[None] < labels[:, None]
    before = jnp.sum((logits > own) | ((logits == own) & earlier), -1)
    return jnp.where(jnp.isnan(logits).any(-1), jnp.iinfo(before.dtype).max, before)
