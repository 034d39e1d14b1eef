"""DARTS (Liu et al., ICLR 2019): a softmax over all operations of an edge, by bilevel descent.

The first-order approximation takes the gradient of the validation loss with W as it is. The
second-order one takes it at the W that one step of training would lead to, Eq. (6):

    d/d alpha  L_val(w - xi dL_train(w, alpha)/dw, alpha)

Differs from the release in: 1. this gradient is exact, by differentiating through the step of W,
where the release replaces the product of a Hessian and a vector by a finite difference (Eq. 8).
With `microbatches` each part of a batch looks ahead by a part of the batch of W.
"""

import jax
import optax

from istanas_jax.devices.parallel import AXIS
from istanas_jax.methods.tables import Table, TableMethod
from istanas_jax.training import optimizers, streams
from istanas_jax.training.search_steps import super_loss, update_architecture, update_weights
from istanas_jax.training.states import SearchState, Totals


class Darts(TableMethod):
    """DARTS with the first-order approximation."""

    name = "darts"
    title = "DARTS (1st order)"

    def table(self, alpha) -> Table:
        return self.softmax_table(alpha)


def unrolled_step(
    state: SearchState, b_images, b_labels, w_images, w_labels, *, adam, sgd, **fixed
) -> tuple[SearchState, Totals]:
    """Update alpha at the W after the coming step, then take this step of W."""
    weights, recipe, method = state.weights, fixed["recipe"], fixed["method"]
    w_batch = (
        recipe.draw_augmentation(weights.key(streams.WEIGHTS_IMAGES), w_images),
        w_images,
        w_labels,
    )

    def loss_of_arch(trainable, stats, draws, images, labels, *w_batch):
        arch = method.with_trainable(state.arch, trainable)

        def train_loss(params):
            return super_loss(weights, params, arch, stats, *w_batch, **fixed)[0]

        dw = jax.lax.pmean(jax.grad(train_loss)(weights.params), AXIS)
        ahead = method.step_ahead(weights, dw)
        return super_loss(weights, ahead, arch, stats, draws, images, labels, **fixed)

    state = update_architecture(
        state, b_images, b_labels, *w_batch, loss_of_arch=loss_of_arch, adam=adam, **fixed
    )
    weights, totals = update_weights(
        state.weights, state.arch, w_images, w_labels, sgd=sgd, **fixed
    )
    return state.replace(weights=weights), totals


class SecondOrder(Darts):
    """DARTS with the second-order gradient."""

    name = "darts_second_order"
    title = "DARTS (2nd order)"
    update = staticmethod(unrolled_step)

    def step_ahead(self, weights, dw):
        """W after a step of SGD with momentum and decay, unclipped as in the release."""
        phase = self.config.search
        rate = optimizers.learning_rate(
            phase.weights, epochs=self.epochs, steps_per_epoch=self.steps_per_epoch
        )(weights.step)
        momentum = optax.tree_utils.tree_get(weights.sgd, "trace")
        mu, decay = phase.weights.momentum, phase.weights.weight_decay
        return jax.tree.map(
            lambda w, m, g: w - rate * (mu * m + g + decay * w), weights.params, momentum, dw
        )
