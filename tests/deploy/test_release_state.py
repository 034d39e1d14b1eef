"""Variables under the names of the authors' release, there and back."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from istanas_jax.deploy.release_state import load_release_state, to_release_state
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.space import genotype
from istanas_jax.space.spaces import DARTS

pytestmark = pytest.mark.slow
NETS = {
    "retrain": TargetNet(genotype.load("AmoebaNet_A"), 10, cells=3, channels=4, auxiliary=True),
    "imagenet": TargetNet(
        genotype.load("ISTA_onestage"), 10, 4, 4, "imagenet", "one_stage", image_channels=1
    ),
    "imagenet_auxiliary": TargetNet(
        genotype.load("ISTA_ImageNet"), 10, cells=2, channels=4, stem="imagenet", auxiliary=True
    ),
    "search": SuperNet(10, cells=3, channels=4, space=replace(DARTS, nodes=3)),
    "one_stage": SuperNet(10, cells=3, channels=2, regime="one_stage", auxiliary=True),
}


@cache
def fresh(name):
    """Variables as at the start of training, random weights instead of the usual ones."""
    net, key, rng = NETS[name], jax.random.key(0), np.random.default_rng(0)
    size = 224 if net.stem == "imagenet" else 32
    x = jnp.zeros((1, size, size, net.image_channels))
    choice = ()
    if isinstance(net, SuperNet):
        shape = (2, net.space.nodes, net.space.most)
        choice = (jnp.zeros(shape, jnp.int32), jnp.zeros(shape))
    shapes = flatten_dict(jax.eval_shape(lambda: net.init(key, x, *choice, train=False)))
    leaves = {path: rng.standard_normal(leaf.shape, np.float32) for path, leaf in shapes.items()}
    for path, leaf in leaves.items():
        if path[0] == "batch_stats":
            leaf[..., 0, :], leaf[..., 1, :] = 0, 1
    return net, unflatten_dict(leaves)


def assert_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    for key, array in ours.items():
        assert array.dtype == theirs[key].dtype == np.float32
        np.testing.assert_array_equal(array, theirs[key], err_msg=str(key))


@pytest.mark.parametrize("name", NETS)
def test_round_trip(name):
    net, variables = fresh(name)
    arrays = to_release_state(variables, net)
    sizes = sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))
    moments = ("running_mean", "running_var")
    assert sizes == sum(a.size for key, a in arrays.items() if not key.endswith(moments))
    back = load_release_state(arrays, net)
    assert_equal(flatten_dict(back), flatten_dict(variables))

    rng = np.random.default_rng(1)  # statistics that differ from norm to norm
    other = {key: rng.standard_normal(a.shape, np.float32) for key, a in arrays.items()}
    on_device = jax.tree.map(jnp.asarray, load_release_state(other, net))
    assert_equal(to_release_state(on_device, net), other)


def test_prefix_and_counters_are_ignored():
    net, variables = fresh("retrain")
    arrays = to_release_state(variables, net)
    wrapped = {f"module.{key}": array for key, array in arrays.items()}
    wrapped["module.stem.1.num_batches_tracked"] = np.array(7)
    back = load_release_state(wrapped, net)
    assert_equal(flatten_dict(back), flatten_dict(variables))


def test_weights_that_do_not_fit():
    net, variables = fresh("retrain")
    arrays = to_release_state(variables, net)
    without = {key: a for key, a in arrays.items() if key != "stem.1.bias"}
    with pytest.raises(ValueError, match=r"this TargetNet: missing stem\.1\.bias$"):
        load_release_state(without, net)
    with pytest.raises(ValueError, match=r"left over fc\.weight$"):
        load_release_state(arrays | {"fc.weight": np.zeros(3)}, net)
    message = r"of another shape classifier\.bias \(100,\) instead of \(10,\)$"
    with pytest.raises(ValueError, match=message):
        load_release_state(arrays | {"classifier.bias": np.zeros(100)}, net)
    with pytest.raises(ValueError, match=r"missing stem\.0\.weight, .* and \d+ more$"):
        load_release_state({}, net)
    with pytest.raises(ValueError, match=r"left over auxiliary_head\.\S+, .* and \d+ more$"):
        load_release_state(arrays, net.clone(auxiliary=False))
    with pytest.raises(ValueError, match=r"left over .*params/auxiliary/"):
        to_release_state(variables, net.clone(auxiliary=False))
    message = r"of another shape params/stem/conv0 \(3, 3, 3, 12\) instead of \(3, 3, 3, 18\), "
    with pytest.raises(ValueError, match=message):
        to_release_state(variables, net.clone(channels=6))
