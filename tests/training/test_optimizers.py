"""Learning rates and optimisers against the formulas that PyTorch documents, over 20 steps.

The release trains with PyTorch, so its numbers mean what PyTorch does with them. The formulas are
written out in numpy and float64, in which optax computes here too.
"""

import jax
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from istanas_jax.training import optimizers

STEPS_PER_EPOCH, EPOCHS = 4, 5
STEPS = STEPS_PER_EPOCH * EPOCHS
EXACT = {"rtol": 1e-12, "atol": 1e-15}  # sums of float64 in another order
SHAPES = {"kernel": (3, 4), "scale": (5,)}


@pytest.fixture(autouse=True)
def _in_float64():
    with jax.enable_x64(True):
        yield


def rates(**settings):
    """The rate of every step, and of the first after the last epoch."""
    config = ConfigDict(
        {
            "learning_rate": 0.1,
            "final_learning_rate": 0.004,
            "learning_rate_schedule": "cosine",
            "warmup_epochs": 0,
        }
        | settings
    )
    schedule = optimizers.learning_rate(config, epochs=EPOCHS, steps_per_epoch=STEPS_PER_EPOCH)
    return np.array([schedule(step) for step in range(STEPS + 1)])


def cosine(step, steps, first, last):
    """CosineAnnealingLR: eta_min + (eta_max - eta_min) (1 + cos(pi T_cur / T_max)) / 2."""
    return last + (first - last) * (1 + np.cos(np.pi * step / steps)) / 2


def linear(step, steps, first, last):
    """LinearLR: base_lr (start_factor + (end_factor - start_factor) t / total_iters)."""
    return first * (1 + (last / first - 1) * np.minimum(step, steps) / steps)


def constant(step, steps, first, last):
    return np.full(len(step), first)


@pytest.mark.parametrize("decay", [cosine, linear, constant])
@pytest.mark.parametrize("warmup_epochs", [0, 2])
def test_learning_rates(decay, warmup_epochs):
    """Warm-up rises from 0 as LinearLR does; what follows it ends with the last epoch."""
    found = rates(learning_rate_schedule=decay.__name__, warmup_epochs=warmup_epochs)
    warmup = warmup_epochs * STEPS_PER_EPOCH
    rising = 0.1 * np.arange(warmup) / max(warmup, 1)
    falling = decay(np.arange(STEPS + 1 - warmup), STEPS - warmup, 0.1, 0.004)
    np.testing.assert_allclose(found, np.concatenate([rising, falling]), **EXACT)
    assert found[warmup] == found.max() == 0.1
    ends = {cosine: 0.004, linear: 0.004, constant: 0.1}
    np.testing.assert_allclose(found[-1], ends[decay], **EXACT)


def test_cosine_to_zero():
    np.testing.assert_allclose(
        rates(final_learning_rate=0.0), cosine(np.arange(STEPS + 1), STEPS, 0.1, 0.0), **EXACT
    )


def weights(seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, shape in SHAPES.items()}


def gradient(w, step):
    """The gradient at w of a loss that differs from step to step, as that of a batch does."""
    noise = weights(seed=1 + step)
    return {name: np.cos(2 * w[name]) + 0.3 * noise[name] for name in w}


def descend(optimiser):
    """All weights that an optimiser of optax comes through."""
    w = weights()
    state, path = optimiser.init(w), []
    for step in range(STEPS):
        change, state = optimiser.update(gradient(w, step), state, w)
        w = jax.device_get(optax.apply_updates(w, change))
        path.append(w)
    return path


def compare(found, expected, **tolerance):
    moved = max(np.abs(expected[-1][name] - value).max() for name, value in weights().items())
    assert moved > 1e-2
    for ours, theirs in zip(found, expected, strict=True):
        for name in SHAPES:
            np.testing.assert_allclose(ours[name], theirs[name], **tolerance)


def torch_sgd(rate, *, momentum, weight_decay, max_norm):
    """torch.optim.SGD without dampening, after torch.nn.utils.clip_grad_norm_."""
    w, path, clipped = weights(), [], 0
    buffer = dict.fromkeys(w, 0.0)  # PyTorch begins with the first gradient: the same
    for step in range(STEPS):
        g = gradient(w, step)
        norm = np.sqrt(sum(np.sum(value**2) for value in g.values()))
        scale = min(1.0, max_norm / (norm + 1e-6))
        clipped += scale < 1
        g = {name: scale * g[name] + weight_decay * w[name] for name in w}
        buffer = {name: momentum * buffer[name] + g[name] for name in w}
        w = {name: w[name] - rate[step] * buffer[name] for name in w}
        path.append(w)
    return path, clipped


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("max_norm", [1e6, 3.0])
def test_sgd(max_norm, momentum, weight_decay):
    rate = cosine(np.arange(STEPS), STEPS, 0.05, 0.001)
    settings = {"momentum": momentum, "weight_decay": weight_decay, "max_gradient_norm": max_norm}
    found = descend(
        optimizers.sgd(ConfigDict(settings), optax.cosine_decay_schedule(0.05, STEPS, alpha=0.02))
    )
    expected, clipped = torch_sgd(
        rate, momentum=momentum, weight_decay=weight_decay, max_norm=max_norm
    )
    assert 0 < clipped < STEPS if max_norm == 3.0 else clipped == 0
    # Only PyTorch adds 1e-6 to the norm before it divides by it.
    compare(found, expected, **({"atol": 1e-6} if clipped else EXACT))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam(weight_decay):
    """torch.optim.Adam: the decay is part of the gradient, unlike AdamW's."""
    settings = {"learning_rate": 0.02, "b1": 0.5, "b2": 0.999, "weight_decay": weight_decay}
    rate, b1, b2 = 0.02, 0.5, 0.999
    w, expected = weights(), []
    m, v = (jax.tree.map(np.zeros_like, w) for _ in range(2))
    for step in range(STEPS):
        g = gradient(w, step)
        for name in w:
            g[name] = g[name] + weight_decay * w[name]
            m[name] = b1 * m[name] + (1 - b1) * g[name]
            v[name] = b2 * v[name] + (1 - b2) * g[name] ** 2
        count = step + 1
        w = {
            name: w[name]
            - rate * (m[name] / (1 - b1**count)) / (np.sqrt(v[name] / (1 - b2**count)) + 1e-8)
            for name in w
        }
        expected.append(w)
    compare(descend(optimizers.adam(ConfigDict(settings))), expected, **EXACT)
