"""Second-order DARTS: its gradient against finite differences."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from places import ROOT

from istanas_jax.config.files import load_config
from istanas_jax.devices.parallel import Devices
from istanas_jax.methods.darts import SecondOrder, unrolled_step
from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import Mode, init_stats
from istanas_jax.networks.supernet.dense import Mixture
from istanas_jax.training.objective import Recipe
from istanas_jax.training.states import SearchState, Totals, TrainState


class Toy:
    """The part of a super-net that a step needs: logits from W, images and the table."""

    def apply(self, variables, x, *, mixture, **_):
        w = variables["params"]["w"]
        features = jnp.tanh(x.reshape(len(x), -1) @ w)
        weights = mixture.table.reshape(-1)[: w.shape[1]]
        return (features * weights[None] @ jnp.ones((w.shape[1], 1)) * jnp.array([[1.0, -0.5]]),
                None), {"batch_stats": variables["batch_stats"]}  # fmt: skip


def test_second_order_gradient_against_finite_differences():
    """The gradient of L_val(w - xi (mu m + dL_train/dw + decay w), alpha), on two devices."""
    spec = str(ROOT / "configs" / "digits.py:tiny")
    chosen = ("space.nodes=2", "search.method=darts_second_order")
    chosen += ("search.weights.learning_rate=0.5",)
    config = load_config(spec, [f"--config.{each}" for each in chosen])
    method = SecondOrder(config, 10)
    mean, std = (0.5,), (0.25,)
    recipe = Recipe(mean, std, 0, False, 0, 0.0, 0.0, 0.0, False, 1, 100)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, 8, 2, 2, 1), np.uint8)
    labels = rng.integers(0, 2, (2, 8))
    params, trace = ({"w": rng.normal(size=(4, 6)).astype(np.float32)} for _ in range(2))
    sgd = optax.chain(optax.clip_by_global_norm(1e-3), optax.sgd(0.1, momentum=0.9))
    weights = TrainState.create(
        {"params": jax.tree.map(jnp.asarray, params), "batch_stats": {}}, sgd, 0
    )
    weights = weights.replace(
        sgd=optax.tree_utils.tree_set(weights.sgd, trace=jax.tree.map(jnp.asarray, trace))
    )
    alpha = np.random.default_rng(0).normal(size=method.alpha_shape).astype(np.float32)
    arch = method.with_trainable(method.init_variables(jax.random.key(0)), jnp.asarray(alpha))
    plain = optax.sgd(1.0)  # so that the change is minus the gradient
    state = SearchState(weights, arch, plain.init(arch.alpha), Totals.zero())
    devices = Devices()
    step = devices.map(
        partial(unrolled_step, net=Toy(), sgd=sgd, adam=plain, recipe=recipe, method=method), 4
    )
    batches = (images[0], labels[0], images[1], labels[1])
    after, _ = step(devices.replicate(state), *map(devices.split, batches))
    gradient = np.asarray(alpha - after.arch.alpha)

    with jax.enable_x64(True):

        def loss(w, alpha, which):
            x = (images[which] / 255.0 - mean[0]) / std[0]
            table = jax.nn.softmax(alpha, -1)[..., 1:]
            variables = {"params": {"w": w}, "batch_stats": {}}
            (logits, _), _ = Toy().apply(variables, x, mixture=Mixture(table))
            rows = jnp.arange(len(labels[which]))
            return -jax.nn.log_softmax(logits)[rows, labels[which]].mean()

        @jax.jit
        def ahead(alpha):
            w = jnp.asarray(params["w"], float)
            dw = jax.grad(loss)(w, alpha, 1)
            w = w - 0.5 * (0.9 * np.asarray(trace["w"], float) + dw + 3e-4 * w)
            return loss(w, alpha, 0)

        point, epsilon = np.asarray(alpha, float), 1e-5
        for place in [(0, 0, 0), (0, 0, 3), (0, 0, 5)]:
            change = np.zeros(point.shape)
            change[place] = epsilon
            slope = (ahead(point + change) - ahead(point - change)) / (2 * epsilon)
            np.testing.assert_allclose(gradient[place], slope, rtol=2e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["sep_conv_3x3", "max_pool_3x3"])
def test_operations_can_be_differentiated_twice(op):
    """The second-order gradient goes through the kernels' own gradients."""
    regime = operations.REGIMES["search"]
    rng = np.random.default_rng(0)
    norms = operations.num_norms(op, 1, regime)
    with jax.enable_x64(True):
        shapes = operations.weight_shapes(op, 2, 1, regime)
        weights = {name: jnp.asarray(rng.normal(size=shape)) for name, shape in shapes.items()}
        x, along = (jnp.asarray(rng.normal(size=(2, 3, 3, 2))) for _ in range(2))
        g = jnp.asarray(rng.normal(size=(2, 3, 3, 2)))

        def first(x):
            def f(x):
                stats = init_stats(norms, 2)
                y, _ = operations.apply_op(op, x, weights, stats, stride=1, mode=Mode(True))
                return jnp.sum(jnp.sin(y) * g)

            return jnp.sum(jax.grad(f)(x) * along)

        first, second = jax.jit(first), jax.jit(jax.grad(first))
        epsilon = 1e-5
        slope = (first(x + epsilon * g) - first(x - epsilon * g)) / (2 * epsilon)
        np.testing.assert_allclose(jnp.sum(second(x) * g), slope, rtol=1e-4)
