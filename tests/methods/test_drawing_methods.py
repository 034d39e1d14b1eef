"""GDAS and DrNAS, which draw the weights of operations: values, moments and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import digamma, gammaln
from tiny_methods import EDGES, STEPS, make

from istanas_jax.methods import drnas
from istanas_jax.space.spaces import DARTS
from istanas_jax.training import optimizers, streams

DRAWS = 2000
NUM_OPS = DARTS.num_ops


class Weights:
    """As much of a TrainState as a method looks at."""

    def __init__(self, step=0, seed=3):
        self.step, self.seed = jnp.int32(step), seed

    def key(self, stream):
        return jax.random.fold_in(jax.random.key(self.seed), stream)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def with_alpha(method, seed=0):
    start = method.init_variables(jax.random.key(0))
    alpha = np.random.default_rng(seed).normal(size=start.alpha.shape).astype(np.float32)
    return method.with_trainable(start, jnp.asarray(alpha)), alpha


def many_draws(method, arch):
    """(draws, edges, operations) of the normal cell."""

    def one(seed):
        weights = Weights()
        weights.key = lambda stream: jax.random.fold_in(jax.random.key(seed), stream)
        return method.network_inputs(arch, weights)["mixture"].table[0]

    return np.asarray(jax.jit(jax.vmap(one))(jnp.arange(DRAWS)))


def test_gdas_runs_the_operation_that_is_drawn():
    method = make("gdas", "search.epochs=11")
    arch, alpha = with_alpha(method)
    assert alpha.shape == (2, EDGES, 1 + NUM_OPS)
    for step, temperature in ((0, 10.0), (5 * STEPS + 9, 5.05), (10 * STEPS, 0.1), (10**7, 0.1)):
        np.testing.assert_allclose(method.temperature(jnp.int32(step)), temperature, rtol=1e-5)
    noise = np.asarray(jax.random.gumbel(Weights().key(streams.METHOD), alpha.shape))
    logits = np.log(softmax(alpha)) + noise
    drawn = np.eye(1 + NUM_OPS, dtype=np.float32)[logits.argmax(-1)]
    table = method.network_inputs(arch, Weights())["mixture"].table
    np.testing.assert_allclose(table, drawn[..., 1:], atol=1e-6)
    likeliest = np.eye(1 + NUM_OPS)[alpha.argmax(-1)][..., 1:]
    np.testing.assert_array_equal(method.network_inputs(arch)["mixture"].table, likeliest)
    # W's half of a step has a draw of its own.
    other = method.network_inputs_for_w(arch, Weights())["mixture"].table
    assert np.any(np.asarray(other) != np.asarray(table))
    np.testing.assert_allclose(
        method.snapshot(arch)["coefficients"].max(), softmax(alpha)[..., 1:].max(), rtol=1e-5
    )


@pytest.mark.parametrize("step", [0, 10 * STEPS])
def test_gdas_gradient_is_that_of_the_softmax_where_it_drew(step):
    """With respect to alpha: c_o soft_o (1[o = k] - soft_k) / temperature, o being drawn."""
    method = make("gdas", "search.epochs=11")
    arch, alpha = with_alpha(method)
    c = np.random.default_rng(1).normal(size=(2, EDGES, NUM_OPS)).astype(np.float32)

    def loss(alpha):
        there = method.with_trainable(arch, alpha)
        return jnp.sum(c * method.network_inputs(there, Weights(step))["mixture"].table)

    noise = np.asarray(jax.random.gumbel(Weights(step).key(streams.METHOD), alpha.shape))
    logits = (np.log(softmax(alpha)) + noise).astype(np.float64)
    temperature = float(method.temperature(jnp.int32(step)))
    soft, drawn = softmax(logits / temperature), logits.argmax(-1)
    expected = np.zeros_like(soft)
    for place in np.ndindex(2, EDGES):
        o = drawn[place]
        if o > 0:  # the zero operation has no output, so no gradient
            unit = np.eye(1 + NUM_OPS)[o]
            expected[place] = c[place][o - 1] * soft[place][o] * (unit - soft[place]) / temperature
    assert (drawn == 0).any() or step == 0
    # Near the end a softmax has entries close to 0 and 1, whose products float32 rounds.
    np.testing.assert_allclose(jax.grad(loss)(arch.alpha), expected, rtol=1e-3, atol=1e-5)


def test_gdas_draws_as_often_as_alpha_says():
    method = make("gdas")
    arch, alpha = with_alpha(method)
    share = many_draws(method, arch).mean(0)
    p = softmax(alpha[0])[..., 1:]
    # Five standard deviations of a mean of so many draws.
    assert np.all(np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / DRAWS))


@pytest.mark.slow
def test_drnas_draws_have_the_moments_of_a_dirichlet_distribution():
    method = make("drnas")
    arch, alpha = with_alpha(method)
    assert alpha.shape == (2, EDGES, NUM_OPS)
    beta = np.where(alpha > 0, alpha + 1, np.exp(alpha))
    mean = beta / beta.sum(-1, keepdims=True)
    np.testing.assert_allclose(method.network_inputs(arch)["mixture"].table, mean, rtol=1e-5)
    np.testing.assert_allclose(method.table(arch.alpha), mean, rtol=1e-5)
    draws = many_draws(method, arch)
    np.testing.assert_allclose(draws.sum(-1), 1, rtol=1e-5)
    variance = mean * (1 - mean) / (1 + beta.sum(-1, keepdims=True))
    # Five standard deviations of the mean; a variance is known less well.
    assert np.all(np.abs(draws.mean(0) - mean[0]) <= 5 * np.sqrt(variance[0] / DRAWS))
    np.testing.assert_allclose(draws.var(0), variance[0], rtol=0.25)


def test_drnas_gradient_is_pathwise():
    """On average over draws the gradient of a weight is that of its mean, beta_0 / sum(beta)."""
    method = make("drnas")
    arch, alpha = with_alpha(method)

    def first(alpha, seed):
        weights = Weights()
        weights.key = lambda stream: jax.random.fold_in(jax.random.key(seed), stream)
        there = method.with_trainable(arch, alpha)
        return jnp.sum(method.network_inputs(there, weights)["mixture"].table[0, :, 0])

    gradient = jax.jit(jax.vmap(jax.grad(first), (None, 0)))
    found = np.asarray(gradient(arch.alpha, jnp.arange(DRAWS)))[:, 0]
    beta = np.where(alpha[0] > 0, alpha[0] + 1, np.exp(alpha[0]))
    total = beta.sum(-1, keepdims=True)
    of_beta = (np.eye(NUM_OPS)[0] * total - beta[:, :1]) / total**2
    expected = of_beta * np.where(alpha[0] > 0, 1, np.exp(alpha[0]))
    error = found.std(0) / np.sqrt(DRAWS)
    assert np.all(np.abs(found.mean(0) - expected) <= 5 * error + 1e-6)


def test_drnas_distances():
    alpha = np.random.default_rng(2).normal(size=(2, 3, 4))
    beta = np.where(alpha > 0, alpha + 1, np.exp(alpha))
    total = beta.sum(-1)
    # E[log Dir(x; beta) - log Dir(x; 1)], where E[log x_k] = digamma(beta_k) - digamma(total).
    logs = digamma(beta) - digamma(total)[..., None]
    expected = gammaln(total) - gammaln(beta).sum(-1) - gammaln(4) + ((beta - 1) * logs).sum(-1)
    given, every = jnp.asarray(alpha, jnp.float32), np.ones(alpha.shape, bool)
    np.testing.assert_allclose(drnas.divergence(given, every), expected.sum(), rtol=1e-4)
    # An edge of which only two operations exist is one of two entries.
    some = np.arange(4) < np.array([4, 2, 3])[:, None] * np.ones((2, 1, 1))
    pair = drnas.divergence(given[:1, 1:2, :2], every[:1, 1:2, :2])
    np.testing.assert_allclose(drnas.divergence(given[:1, 1:2], some[:1, 1:2]), pair, rtol=1e-5)
    for distance in drnas.DISTANCES.values():
        of = lambda alpha, distance=distance: distance(alpha, every)  # noqa: E731
        # Logarithms of gamma functions in float32, summed over 6 edges.
        np.testing.assert_allclose(of(jnp.zeros((2, 3, 4))), 0, atol=1e-4)
        np.testing.assert_allclose(jax.grad(of)(jnp.zeros((2, 3, 4))), 0, atol=1e-4)
        step = 1e-2 * np.sign(alpha)
        up, down = (float(of(jnp.asarray(alpha + s, jnp.float32))) for s in (step, -step))
        along = float(np.sum(step * np.asarray(jax.grad(of)(given))))
        # Central differences: an error of the order of the step's square.
        assert along == pytest.approx((up - down) / 2, rel=1e-2)
        gradient = np.asarray(jax.grad(distance)(given, some))
        assert np.isfinite(gradient).all() and not gradient[~some].any()


def test_drnas_l2_is_the_decay_of_the_release():
    """Adam with a decay of 1e-3, which the release has in the DARTS space."""
    method = make("drnas", "search.drnas.adam.learning_rate=0.1")
    settings = method.settings.adam.copy_and_resolve_references()
    settings.weight_decay = method.settings.distance_scale
    arch, alpha = with_alpha(method)
    gradients = np.random.default_rng(3).normal(size=(3, *alpha.shape)).astype(np.float32)
    ours, theirs = (
        _path(adam, arch.alpha, gradients) for adam in (method.adam(), optimizers.adam(settings))
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    with_kl = make("drnas", "search.drnas.adam.learning_rate=0.1", "search.drnas.distance=kl")
    assert np.abs(_path(with_kl.adam(), arch.alpha, gradients) - theirs).max() > 1e-4
    assert not method.moves_at(jnp.int32(method.settings.warmup_epochs * STEPS - 1))
    assert method.moves_at(jnp.int32(method.settings.warmup_epochs * STEPS))


def _path(adam, alpha, gradients):
    state = adam.init(alpha)
    for gradient in gradients:
        change, state = adam.update(jnp.asarray(gradient), state, alpha)
        alpha = optax.apply_updates(alpha, change)
    return np.asarray(alpha)
