"""Our networks give what those of the authors' release give, from the same weights and images."""

from functools import cache
from itertools import compress, product
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from istanas_jax.deploy.release_state import load_release_state, to_release_state
from istanas_jax.networks import operations
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.space import genotype
from istanas_jax.space.connections import edge_index
from istanas_jax.space.spaces import DARTS
from istanas_jax.sparse_coding.architecture import ArchState, coefficients

pytestmark = pytest.mark.slow
# float32 sums run in another order; measured differences are below 1e-5.
LOGITS = 1e-4
# A share of the largest entry: a gradient passes through some 60 batch norms, each a difference of
# sums. Measured differences are below 2e-5.
GRADIENT = 1e-4
# A share of the root mean square of a ReLU's inputs. Those of float32 and of float64 differ by 1e-6
# in the typical ReLU, from 1e-7 in the first cell to 8e-6 in the last.
ROUNDING = 5e-6
MOST_ON_KINK = 10
# Statistics are means of activations that agree as logits do, and move by a tenth of them.
STATISTICS = 1e-5
SMALL = {"classes": 10, "cells": 8, "auxiliary": True}
TARGETS = {
    "two_stage": TargetNet(genotype.load("ISTA_twostage"), channels=8, **SMALL),
    "one_stage": TargetNet(genotype.load("ISTA_onestage"), channels=8, regime="one_stage", **SMALL),
    "imagenet": TargetNet(genotype.load("ISTA_ImageNet"), channels=4, stem="imagenet", **SMALL),
}


def read(path, net):
    """The arrays of a file, and the network's variables, images and labels among them."""
    arrays = dict(np.load(path))
    variables = load_release_state(under(arrays, "state/"), net)
    return arrays, variables, arrays["x_nchw"].transpose(0, 2, 3, 1), arrays["labels"]


def under(arrays, prefix):
    found = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
    assert found
    return found


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def gradient_error(ours, theirs):
    assert ours.shape == theirs.shape
    return np.abs(ours - theirs).max() / np.abs(theirs).max()


@cache
def run_target(folder, name):
    """All that is compared for one network, from one compilation."""
    net = TARGETS[name]
    release, variables, x, labels = read(folder / "parity" / f"target_{name}.npz", net)

    @jax.jit
    def evaluate(variables, x):
        return net.apply(variables, x, train=False)

    @jax.jit
    def train(variables, x, labels):
        kernel, loss = loss_of_stem(net, variables, x, labels)
        return jax.value_and_grad(loss, has_aux=True)(kernel)

    (loss, (logits, auxiliary, moved)), gradient = train(variables, x, labels)
    return SimpleNamespace(
        net=net,
        release=release,
        inputs=(variables, x, labels),
        evaluation=evaluate(variables, x),
        loss=loss,
        logits=logits,
        auxiliary=auxiliary,
        after=to_release_state(variables | moved, net),
        gradient=np.asarray(gradient).transpose(3, 2, 0, 1),
    )


def loss_of_stem(net, variables, x, labels):
    """The stem's first kernel, and the training loss as a function of it."""

    def loss(kernel):
        params = dict(variables["params"])
        params["stem"] = params["stem"] | {"conv0": kernel}
        (logits, auxiliary), moved = net.apply(
            variables | {"params": params}, x, train=True, mutable=["batch_stats"]
        )
        value = cross_entropy(logits, labels) + 0.4 * cross_entropy(auxiliary, labels)
        return value, (logits, auxiliary, moved)

    return variables["params"]["stem"]["conv0"], loss


@pytest.mark.parametrize("name", TARGETS)
def test_target_net_evaluates_alike(shared, name):
    run = run_target(shared, name)
    logits, auxiliary = run.evaluation
    assert auxiliary is None
    # With the statistics from before the training pass; after it they differ by 0.02 or more.
    np.testing.assert_allclose(logits, run.release["eval_logits"], rtol=0, atol=LOGITS)


@pytest.mark.parametrize("name", TARGETS)
def test_target_net_trains_alike(shared, name):
    run = run_target(shared, name)
    np.testing.assert_allclose(run.logits, run.release["train_logits"], rtol=0, atol=LOGITS)
    np.testing.assert_allclose(run.auxiliary, run.release["train_aux_logits"], rtol=0, atol=LOGITS)
    np.testing.assert_allclose(run.loss, run.release["train_loss"], rtol=0, atol=LOGITS)
    for key, theirs in under(run.release, "after/").items():
        np.testing.assert_allclose(run.after[key], theirs, rtol=STATISTICS, atol=STATISTICS)


@pytest.mark.parametrize("name", TARGETS)
def test_target_net_has_the_same_gradient(shared, name):
    """In float32 and in the release it is that of float64, up to the side of ReLUs on their kink.

    Where a ReLU's input is 0 to within rounding, rounding decides whether its derivative is 0 or 1,
    and one such ReLU can move this gradient by 6 %. These few (at most 7 of 0.7 to 2.8 million) may
    have either derivative. All the others, and all the maxima, are as in float64.
    """
    run = run_target(shared, name)
    with jax.enable_x64(True):
        gradient, on_kink = float64_gradient(run)
        assert len(on_kink) <= MOST_ON_KINK
        assert 0 not in on_kink  # would be on the kink by construction, not by rounding
        plain = gradient([])
        effects = [gradient([one]) - plain for one in on_kink]
        for rounded in (run.release["grad_stem"], run.gradient):

            def error(choice, rounded=rounded):
                return gradient_error(sum(compress(effects, choice), plain), rounded)

            choice = min(product([False, True], repeat=len(on_kink)), key=error)
            exact = gradient(list(compress(on_kink, choice)))
            assert gradient_error(exact, rounded) <= GRADIENT


def float64_gradient(run):
    """The stem's gradient with the derivatives of some ReLUs switched from 0 to 1 or back, and the
    inputs of ReLUs that are 0 to within the rounding of float32.

    A ReLU is named by its input, so that all operations that read the same pixel switch together.
    """
    net, plain_relu, same = run.net.clone(dtype="float64"), operations.relu, 1e-12

    @jax.jit
    def train(variables, x, labels, switched):
        inputs = []

        def relu(x):
            inputs.append(x)
            is_switched = jnp.abs(x[..., None] - switched[None, None, None, None]) < same
            change = jnp.where(is_switched.any(-1), jnp.where(x > 0, -1.0, 1.0), 0.0)
            return plain_relu(x) + change * (x - lax.stop_gradient(x))

        def recorded(kernel):
            return loss(kernel)[0], inputs

        kernel, loss = loss_of_stem(net, variables, x, labels)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(operations, "relu", relu)
            for name in ("apply_op", "preprocess"):  # a jit of their own would keep the inputs in
                patch.setattr(operations, name, getattr(operations, name).__wrapped__)
            return jax.grad(recorded, has_aux=True)(kernel)

    variables, x, labels = run.inputs
    variables, x = jax.tree.map(np.float64, (variables, x))

    def gradient(switched):
        padded = np.full(MOST_ON_KINK, np.nan)
        padded[: len(switched)] = switched
        kernel, inputs = train(variables, x, labels, padded)
        return np.asarray(kernel).transpose(3, 2, 0, 1), inputs

    on_kink = set()
    for values in map(np.asarray, gradient([])[1]):
        assert values.dtype == np.float64
        near = np.abs(values) < ROUNDING * np.sqrt(np.mean(values**2))
        on_kink |= {round(float(value), 12) for value in values[near]}
    return lambda switched: gradient(switched)[0], sorted(on_kink)


def read_architecture(release):
    def stack(key, dtype):
        """One array over cell types and nodes, padded to the candidates of the last node."""
        nodes = [
            release[f"{cell_type}/{key}{j}"] for cell_type in ("normal", "reduce") for j in range(4)
        ]
        widest = max(node.shape[-1] for node in nodes)
        stacked = np.zeros((2, 4, *nodes[0].shape[:-1], widest), dtype)
        for n, node in enumerate(nodes):
            stacked[n // 4, n % 4, ..., : node.shape[-1]] = node
        return jnp.asarray(stacked)

    return ArchState(
        b=jnp.stack([release["normal/b"], release["reduce/b"]]),
        A=stack("A", np.float32),
        z=stack("z", np.float32),
        support=stack("support", np.int32),
        frozen=jnp.zeros((2, 4), bool),
    )


@pytest.mark.parametrize("dense", [False, True], ids=["dynamic", "dense"])
def test_super_net(shared, dense):
    net = SuperNet(classes=10, cells=5, channels=4)
    release, variables, x, labels = read(shared / "parity" / "supernet_two_stage.npz", net)
    arch = read_architecture(release)

    @jax.jit
    def train(variables, arch, x, labels):
        def loss(b, kernel, classifier):
            moving = arch.replace(b=b)
            params = dict(variables["params"])
            params["stem"] = params["stem"] | {"conv0": kernel}
            params["classifier"] = classifier
            (logits, _), _ = net.apply(
                variables | {"params": params},
                x,
                moving.support,
                coefficients(moving),
                train=True,
                dense=dense,
                mutable=["batch_stats"],
            )
            return cross_entropy(logits, labels), logits

        params = variables["params"]
        at = (arch.b, params["stem"]["conv0"], params["classifier"])
        return jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(*at)

    (loss, logits), (b, stem, classifier) = train(variables, arch, x, labels)
    np.testing.assert_allclose(logits, release["train_logits"], rtol=0, atol=LOGITS)
    np.testing.assert_allclose(loss, release["train_loss"], rtol=0, atol=LOGITS)
    assert gradient_error(b[0], release["grad/normal/b"]) <= GRADIENT
    assert gradient_error(b[1], release["grad/reduce/b"]) <= GRADIENT
    assert gradient_error(stem.transpose(3, 2, 0, 1), release["grad/stem"]) <= GRADIENT
    assert gradient_error(classifier["linear"]["kernel"].T, release["grad/classifier"]) <= GRADIENT


def test_coefficients(shared):
    release = dict(np.load(shared / "parity" / "supernet_two_stage.npz"))
    arch = read_architecture(release)
    tables = np.zeros((2, 14, 7), np.float32)
    ours = np.asarray(coefficients(arch))
    for t, j, k in product(range(2), range(4), range(2)):
        predecessor, op = DARTS.split_index(int(arch.support[t, j, k]))
        tables[t, edge_index(j, predecessor), op] = ours[t, j, k]
    # Products of 7 numbers below 1 in float32.
    for table, cell_type in zip(tables, ("normal", "reduce"), strict=True):
        np.testing.assert_allclose(table, release[f"coefficients/{cell_type}"], rtol=0, atol=1e-6)
