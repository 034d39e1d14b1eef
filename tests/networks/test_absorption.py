"""Absorbed coefficients leave the logits as they were."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from istanas_jax.networks.absorption import absorb
from istanas_jax.networks.target_net import TargetNet, init_target
from istanas_jax.space.genotype import random_genotype

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(3))
def test_absorption_keeps_logits(seed):
    """Nets of both cell types with random weights, statistics and coefficients of both signs."""
    rng = np.random.default_rng(seed)
    net = TargetNet(random_genotype(seed), 5, cells=3, channels=4, regime="one_stage")
    variables = init_target(net, jax.random.key(seed), 8)
    noise = lambda x: x + 0.5 * jnp.asarray(rng.standard_normal(x.shape, np.float32))  # noqa: E731
    params = jax.tree.map(noise, variables["params"])
    stats = jax.tree.map(lambda x: jnp.abs(noise(x)) + 0.1, variables["batch_stats"])
    weights = jnp.asarray(rng.standard_normal((2, 4, 2)), jnp.float32)
    x = jnp.asarray(rng.standard_normal((4, 8, 8, 3)), jnp.float32)

    @jax.jit
    def logits(params, weights):
        variables = {"params": params, "batch_stats": stats}
        return net.apply(variables, x, train=False, coefficients=weights)[0]

    before = logits(params, weights)
    after = logits(absorb(net, params, weights), jnp.ones_like(weights))
    scale = np.abs(before).max()
    np.testing.assert_allclose(after, before, atol=1e-5 * scale, rtol=0)
    assert np.abs(logits(params, jnp.ones_like(weights)) - before).max() > 1e-2 * scale


def test_nets_without_the_batch_norms_cannot_absorb():
    net = TargetNet(random_genotype(0), 5, cells=3, channels=4, regime="retrain")
    variables = init_target(net, jax.random.key(0), 8)
    with pytest.raises(ValueError, match="ends in no batch norm to absorb its coefficient"):
        absorb(net, variables["params"], jnp.ones((2, 4, 2)))
