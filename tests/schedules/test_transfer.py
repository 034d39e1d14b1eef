"""A network on other images: what is frozen stays to the bit, what is not learns at its rate."""

import json
import re
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest
from places import ROOT
from sklearn.datasets import load_digits

from istanas_jax.cli.main import main
from istanas_jax.data.preparation import Preparation
from istanas_jax.networks.target_net import TargetNet, init_target
from istanas_jax.runs.trained_network import Trained, load_trained, save_trained
from istanas_jax.space.genotype import random_genotype
from istanas_jax.space.spaces import DARTS
from istanas_jax.training.optimizers import by_part

TRANSFER = str(ROOT / "configs" / "transfer.py:tiny")
FROZEN = ["--config.train.transfer.stem_rate=0", "--config.train.transfer.cells_rate=0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with a network for ten digits, and images of five of them."""
    folder = tmp_path_factory.mktemp("transfer")
    net = TargetNet(random_genotype(0, replace(DARTS, nodes=2)), 10, 1, 4, image_channels=1)
    variables = init_target(net, jax.random.key(7), 8)
    names = tuple(map(str, range(10)))
    save_trained(folder / "run", Trained(net, variables, Preparation(8, 1), (0.25,), (0.5,), names))
    digits = load_digits()
    chosen = np.flatnonzero(digits.target >= 5)[:120]
    images = (digits.images[chosen] * 15).astype(np.uint8)[..., None]
    np.savez(folder / "five.npz", images=images, labels=digits.target[chosen] - 5)
    return folder


def arguments(folder, name, *more):
    data = f"--config.data.name={folder / 'five.npz'}"
    workdir = ["--workdir", str(folder / name)]
    source = ["--from", str(folder / "run")]
    return ["retrain", "--config", TRANSFER, data, *workdir, *source, *more]


def differing(a: dict, b: dict) -> set[str]:
    """Names of the modules in which two networks differ, in weights or statistics."""
    return {
        name
        for kind in ("params", "batch_stats")
        for name in a[kind]
        if not all(jax.tree.leaves(jax.tree.map(np.array_equal, a[kind][name], b[kind].get(name))))
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more", "moved"),
    [
        ("frozen", FROZEN, set()),
        ("stem", ["--config.train.transfer.cells_rate=0"], {"stem", "cell_00"}),
    ],
)
def test_what_learns(folder, name, more, moved, capsys):
    assert main(arguments(folder, name, *more)) == 0
    before, after = load_trained(folder / "run"), load_trained(folder / name)
    assert after.net == before.net.clone(classes=5)
    assert (after.mean, after.std) == (before.mean, before.std)
    old, new = before.variables, after.variables
    body = {
        kind: {module: part for module, part in tree.items() if module != "classifier"}
        for kind, tree in old.items()
    }
    assert differing(body, new) == moved
    # Weights of a rate of 0 stand still although their batch norms see other images.
    same = jax.tree.map(np.array_equal, old["params"]["cell_00"], new["params"]["cell_00"])
    assert all(jax.tree.leaves(same))
    assert json.loads((folder / name / "config.json").read_text())["train"]["channels"] == 4


def test_rates_multiply_what_the_optimizer_does():
    params = {name: {"w": np.ones(2, np.float32)} for name in ("stem", "cell_01", "classifier")}
    sgd = by_part(optax.sgd(1.0), {"stem": 0.0, "cells": 0.25, "head": 2.0})
    updates, _ = sgd.update(params, sgd.init(params), params)
    found = {name: float(part["w"][0]) for name, part in updates.items()}
    assert found == {"stem": 0.0, "cell_01": -0.25, "classifier": -2.0}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--config.train.transfer.head=kept"], "is for 10 classes, but .* has 5: set train.trans"),
        (
            ["--config.train.channels=8"],
            "train.channels is that of the network in .*: leave",
        ),
        (["--genotype", "random:0"], "--from brings its cells: leave out --genotype"),
        ([*FROZEN, "--config.train.auxiliary_weight=0.4"], "train.auxiliary_weight must be 0"),
        (["--config.train.transfer.run=3"], "cannot be read"),
        (["--from", "nowhere"], "nowhere holds no trained network"),
        (
            ["--config", str(ROOT / "configs" / "digits.py:tiny")],
            "the config has no part train.t",
        ),
    ],
)
def test_bad_input(folder, more, sentence, capsys):
    assert main(arguments(folder, "bad", *more)) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(sentence, said), said
    assert not (folder / "bad").exists()


def test_a_network_must_be_named(folder, tmp_path, capsys):
    data = f"--config.data.name={folder / 'five.npz'}"
    for command in ("retrain", "run"):
        words = [command, "--config", TRANSFER, data, "--workdir", str(tmp_path / "run")]
        assert main(words) == 2
        assert "give --from RUN" in capsys.readouterr().err
