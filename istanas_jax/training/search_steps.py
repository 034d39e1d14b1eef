"""One step of a search: pure functions for `parallel.Devices.map`, the same for all methods.

Arrays are positional: the state, then batches of uint8 images and labels, one device's part of
them. What is fixed for a run is keyword-only; the method says how the architecture becomes what
the super-net runs with, and what of it is updated.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Int, UInt8

from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.training import streams
from istanas_jax.training.objective import Recipe
from istanas_jax.training.states import SearchState, TestTotals, Totals, TrainState
from istanas_jax.training.step_rules import StepRules
from istanas_jax.training.steps import batch_totals, evaluate


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
    method: StepRules,
) -> tuple[SearchState, Totals]:
    """Update the architecture on one batch and W on another.

    These are lines 3 to 5 of ISTA-NAS's Algorithm 1, which updates W first; its release, as here,
    the architecture. For DARTS this is the first-order approximation.
    """
    fixed = {"net": net, "recipe": recipe, "method": method}
    begun = state.weights  # both updates run what is drawn for this step

    def move_weights(state):
        arch = method.sample(state.arch, begun)
        weights, totals = update_weights(state.weights, arch, w_images, w_labels, sgd=sgd, **fixed)
        return state.replace(weights=weights), totals

    def move_architecture(state):
        weights, arch = state.weights, method.sample(state.arch, begun)

        def loss_of_arch(trainable, stats, *batch):
            there = method.with_trainable(arch, trainable)
            return super_loss(weights, weights.params, there, stats, *batch, **fixed)

        return update_architecture(
            state, b_images, b_labels, loss_of_arch=loss_of_arch, adam=adam, **fixed
        )

    if method.weights_first:
        state, totals = move_weights(state)
        return move_architecture(state), totals
    return move_weights(move_architecture(state))


def update_architecture(
    state: SearchState,
    images,
    labels,
    *more,
    loss_of_arch,
    adam,
    net,
    recipe: Recipe,
    method: StepRules,
) -> SearchState:
    """Update by the gradient of `loss_of_arch`, unless the method lets only W move.

    more: arrays that the loss takes besides this batch.
    """
    weights = state.weights
    batch = (
        recipe.draw_augmentation(weights.key(streams.ARCHITECTURE_IMAGES), images),
        images,
        labels,
        *more,
    )

    def move(arch, adam_state, stats, b_totals):
        trainable = method.trainable(arch)
        loss, logits, stats, grads = recipe.mean_gradient(loss_of_arch, trainable, stats, batch)
        change, adam_state = adam.update(grads, adam_state, trainable)
        arch = method.after_update(arch, optax.apply_updates(trainable, change))
        return arch, adam_state, stats, b_totals + batch_totals(loss, logits, labels)

    before = (state.arch, state.adam, weights.stats, state.b_totals)
    moving = method.moves_at(weights.step)
    if moving is None:
        arch, adam_state, stats, b_totals = move(*before)
    else:
        arch, adam_state, stats, b_totals = lax.cond(moving, move, lambda *same: same, *before)
    weights = weights.replace(stats=stats)
    return state.replace(weights=weights, arch=arch, adam=adam_state, b_totals=b_totals)


def update_weights(
    weights: TrainState, arch, images, labels, *, net, sgd, recipe: Recipe, method: StepRules
) -> tuple[TrainState, Totals]:
    """Update W with the architecture as it is."""

    def loss_of_w(params, stats, *batch):
        inputs = method.network_inputs_for_w(arch, weights)
        return super_loss(weights, params, arch, stats, *batch, **fixed, inputs=inputs)

    fixed = {"net": net, "recipe": recipe, "method": method}
    batch = (recipe.draw_augmentation(weights.key(streams.WEIGHTS_IMAGES), images), images, labels)
    loss, logits, stats, dw = recipe.mean_gradient(loss_of_w, weights.params, weights.stats, batch)
    params, sgd_state = _descend(net, weights, arch, dw, sgd, method)
    totals = batch_totals(loss, logits, labels)
    return weights.advance(params, stats, sgd_state, totals), totals


def weights_step(
    state: SearchState, images, labels, *, adam, **fixed
) -> tuple[SearchState, Totals]:
    """Update W alone, for methods that train nothing else."""
    weights, totals = update_weights(state.weights, state.arch, images, labels, **fixed)
    return state.replace(weights=weights), totals


def joint_step(
    state: SearchState,
    images: UInt8[Array, "B H W C"],
    labels: Int[Array, " B"],
    *,
    net: SuperNet,
    sgd: optax.GradientTransformation,
    adam: optax.GradientTransformation,
    recipe: Recipe,
    method: StepRules,
) -> tuple[SearchState, Totals]:
    """Update the architecture and W by one loss: SNAS, and ISTA-NAS's Algorithm 2, lines 3-7."""
    weights = state.weights
    arch = method.sample(state.arch, weights)

    def loss_of(both, stats, *batch):
        trainable, params = both
        there = method.with_trainable(arch, trainable)
        return super_loss(
            weights, params, there, stats, *batch, net=net, recipe=recipe, method=method
        )

    trainable = method.trainable(state.arch)
    batch = (
        recipe.draw_augmentation(weights.key(streams.ARCHITECTURE_IMAGES), images),
        images,
        labels,
    )
    loss, logits, stats, (grads, dw) = recipe.mean_gradient(
        loss_of, (trainable, weights.params), weights.stats, batch
    )
    change, adam_state = adam.update(grads, state.adam, trainable)
    moved = method.after_update(state.arch, optax.apply_updates(trainable, change)), adam_state
    moving = method.moves_at(weights.step)
    if moving is not None:
        stay = state.arch, state.adam
        moved = jax.tree.map(lambda new, old: jnp.where(moving, new, old), moved, stay)
    params, sgd_state = _descend(net, weights, arch, dw, sgd, method)
    totals = batch_totals(loss, logits, labels)
    weights = weights.advance(params, stats, sgd_state, totals)
    return state.replace(weights=weights, arch=moved[0], adam=moved[1]), totals


def super_loss(
    weights: TrainState,
    params,
    arch,
    stats,
    draws,
    images,
    labels,
    *,
    net: SuperNet,
    recipe: Recipe,
    method: StepRules,
    inputs: dict[str, Any] | None = None,
):
    """The loss of the super-net in training, its logits and the moved statistics.

    Args:
      weights: has the step and key for what the method draws at random.
      inputs: arguments of the net; None: those for an update of the architecture.
    """
    outputs, moved = net.apply(
        {"params": params, "batch_stats": stats},
        recipe.augment(draws, images),
        **(method.network_inputs(arch, weights) if inputs is None else inputs),
        train=True,
        axis_name=recipe.norm_axis,
        mutable="batch_stats",
    )
    return recipe.loss(outputs, labels), (outputs[0], moved["batch_stats"])


def _descend(net: SuperNet, weights: TrainState, arch, dw, sgd, method: StepRules):
    """Take a step of SGD; the method says which weights, with their momentum, stand still.

    The gradients of those do not count in the norm that is clipped.
    """
    dw = method.keep_inactive_weights(net, arch, jax.tree.map(jnp.zeros_like, dw), dw)
    change, moved = sgd.update(dw, weights.sgd, weights.params)
    updated = optax.apply_updates(weights.params, change)
    return method.keep_inactive_weights(net, arch, (weights.params, weights.sgd), (updated, moved))


def evaluate_search(
    state: SearchState, images, labels, mask, *, net: SuperNet, recipe: Recipe, method: StepRules
) -> TestTotals:
    """Evaluate the super-net with the architecture that W is trained with."""
    return evaluate(
        state.weights,
        images,
        labels,
        mask,
        net=net,
        recipe=recipe,
        batch_statistics=method.batch_statistics,
        **method.network_inputs_for_w(state.arch),
    )
