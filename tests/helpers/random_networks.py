"""Small networks of every kind of operation, with random weights, as if they had been trained."""

from functools import cache

import jax
import numpy as np

from istanas_jax.data.preparation import Preparation
from istanas_jax.networks.target_net import TargetNet, init_target
from istanas_jax.runs.trained_network import Trained
from istanas_jax.space.genotype import Genotype

# Every kind of operation with each stride it can have.
NORMAL = [("sep_conv_3x3", 0), ("dil_conv_3x3", 1), ("skip_connect", 0), ("max_pool_3x3", 2)]
NORMAL += [("avg_pool_3x3", 1), ("conv_7x1_1x7", 3), ("dil_conv_3x3", 0), ("sep_conv_3x3", 2)]
REDUCE = [("skip_connect", 0), ("conv_7x1_1x7", 1), ("sep_conv_3x3", 0), ("skip_connect", 2)]
REDUCE += [("max_pool_3x3", 1), ("dil_conv_3x3", 0), ("avg_pool_3x3", 1), ("sep_conv_3x3", 3)]
GENOTYPE = Genotype(NORMAL, range(2, 6), REDUCE, range(2, 6))
CLASSES = ("ant", "bee", "wasp or fly")
# Of the largest logit; sums run in another order.
ROUNDING = 1e-5


@cache
def trained(regime: str, stem: str = "cifar", channels: int = 3) -> Trained:
    """A network with random batch norms, as if it had learnt something."""
    size = {"cifar": 8, "imagenet": 33}[stem]
    net = TargetNet(GENOTYPE, len(CLASSES), 3, 4, stem=stem, regime=regime, image_channels=channels)
    rng = np.random.default_rng(0)

    def perturb(path, x):
        if path[-1].key.startswith(("scale", "shift")):
            return x + rng.normal(0, 0.5, x.shape).astype(np.float32)
        if path[0].key == "batch_stats":
            mean, variance = rng.normal(0, 0.5, x.shape), rng.uniform(0.2, 2, x.shape)
            return np.where(np.arange(2)[:, None] == 0, mean, variance).astype(np.float32)
        return x

    variables = init_target(net, jax.random.key(0), size)
    variables = jax.device_get(jax.tree_util.tree_map_with_path(perturb, variables))
    mean, std = (0.5, 0.4, 0.3)[:channels], (0.2, 0.3, 0.25)[:channels]
    return Trained(net, variables, Preparation(size, channels), mean, std, CLASSES)


def pixels(network: Trained, count: int) -> np.ndarray:
    shape = (count, network.image_size, network.image_size, network.net.image_channels)
    return np.random.default_rng(1).integers(0, 256, shape, np.uint8)


def assert_close(actual, expected):
    expected = np.asarray(expected)
    np.testing.assert_allclose(actual, expected, 0, ROUNDING * abs(expected).max())
