"""Memory is estimated before it is allocated; `--dry-run` tells it, and writes nothing.

`test_plan` compares the estimate with the compiler's.
"""

import re

import pytest

from istanas_jax.cli import main
from istanas_jax.config.files import load_config
from istanas_jax.devices.parallel import Devices
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.schedules import memory
from istanas_jax.schedules.outline import outline
from istanas_jax.space.genotype import load

CIFAR = "configs/cifar10_two_stage.py"
NET = {"classes": 10, "cells": 8, "channels": 16}
MEASURED = {  # of the README: temporary bytes of a step at batch 64, and what the estimate says
    "dynamic": (331e6, memory.need_of(SuperNet(**NET), 32)),
    "dynamic, 20 cells": (1257e6, memory.need_of(SuperNet(**NET | {"cells": 20}), 32)),
    "dense": (10_376e6, memory.need_of(SuperNet(**NET), 32, dense=True)),
    "static": (
        791e6,
        memory.need_of(TargetNet(load("ISTA_twostage"), **NET, regime="search"), 32),
    ),
}


def outlined(*overrides, spec=CIFAR):
    """Config, data set and devices: what a run's tasks are built of."""
    config = load_config(spec, [f"--config.{override}" for override in overrides])
    return config, outline(config.data), Devices()


@pytest.mark.parametrize("net", MEASURED)
def test_estimates_are_rather_low(net):
    measured, need = MEASURED[net]
    assert measured / 2 < need.per_image * 64 < measured


def test_bfloat16_and_pieces_take_less():
    whole, half, pieces = (
        {phase.name: phase for phase in memory.needs(*outlined(*overrides))}["search"]
        for overrides in ([], ["search.dtype=bfloat16"], ["search.microbatches=4"])
    )
    assert half.need.per_image * 2 == whole.need.per_image
    assert pieces.images * 4 == whole.images


@pytest.mark.parametrize(
    ("overrides", "advice"),
    [
        (["train.batch=50000", "train.cells=400"], r"train\.batch=\d+ would fit"),
        (["search.channels=4096", "search.cells=200"], r"search\.channels=\d+ would fit"),
    ],
)
def test_too_much_is_refused_with_what_would_fit(overrides, advice):
    with pytest.raises(ValueError, match=r"needs about .* GiB of memory or more, ") as error:
        memory.check_memory(*outlined(*overrides))
    fits = re.search(advice, str(error.value))
    assert fits, error.value
    memory.check_memory(*outlined(*overrides, fits[0].removesuffix(" would fit")))


def test_free_memory_of_this_machine():
    assert 2**20 < memory.free_memory(Devices()) < 2**50


def test_dry_run_writes_nothing(tmp_path, capsys):
    run = ["run", "--config", "configs/digits.py:tiny", "--workdir", str(tmp_path / "a" / "run")]
    assert main.main([*run, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "digits: 1,438 training images of 8 x 8 x 1, 10 classes" in said
    assert "search: 3 cells, 4 channels, 2 epochs of 40 steps, batch 16; about " in said
    assert main.main([*run, "--dry-run", "--config.search.channels=4096"]) in (0, 2)
    assert main.main([*run, "--dry-run", "--config.data.pad=8"]) == 2
    assert "data.pad is 8, it must be below the images' 8 pixels" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["train.auxiliary_weight=0.4"], r"train\.auxiliary_weight must be 0: too few of the"),
        (["search.method=pc_darts", "search.pc_darts.partial=3"], "operations see one in 3"),
    ],
)
def test_sizes_that_do_not_go_together_are_found_at_the_start(overrides, sentence):
    with pytest.raises(ValueError, match=sentence):
        memory.check_memory(*outlined(*overrides, spec="configs/digits.py:tiny"))
