"""Whole runs in other spaces: what they find, what their files say, what becomes of it."""

import json
import os

import numpy as np
import pytest
from allowed import assert_allowed
from places import ROOT
from tiny_runs import rows, small_beside, tiny

from istanas_jax.config.files import load_config
from istanas_jax.deploy.export import export
from istanas_jax.deploy.exported import MODEL, RELEASE, ExportError, load_model
from istanas_jax.look.inspection import contents
from istanas_jax.networks.counting import operation_work
from istanas_jax.networks.operations import RETRAIN
from istanas_jax.runs.folder import WorkdirError
from istanas_jax.schedules import retrain, two_stage
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.spaces import read_space
from istanas_jax.training.replay_row import genotype_of

pytestmark = pytest.mark.slow

MINE = "examples/my_operations.py"


def config_of(method, *overrides):
    if method == "ista":
        return tiny("search.epochs=2", *overrides)
    small = [o for o in small_beside(overrides) if not o.startswith("search.ista.")]
    spec = str(ROOT / "configs" / "digits.py:tiny")
    chosen = [f"search.method={method}", *small, "search.epochs=2", *overrides]
    return load_config(spec, [f"--config.{override}" for override in chosen])


@pytest.mark.parametrize(
    ("method", "name", "more"),
    [
        ("ista", "s1", ()),
        ("ista", "s2", ("space.s=(1,2)",)),
        ("ista", "s2", ("space.alike=True",)),
        ("darts", "s4", ()),
        ("darts", "s1", ()),
    ],
)
def test_a_search(method, name, more, tmp_path):
    config = config_of(method, f"space.name={name}", *more)
    two_stage.search(config, tmp_path)
    space = read_space(config.space)
    found = json.loads((tmp_path / "genotype.json").read_text())
    assert found["space"] == json.loads(json.dumps(space.to_dict()))
    assert_allowed(Genotype.from_dict(found), space, zero=True)
    for row in rows(tmp_path, "replay.jsonl"):
        assert_allowed(genotype_of(row), space, zero=True)
    assert f"in the space {name}" in (tmp_path / "report.html").read_text()
    other = config_of(method, "space.name=nas_bench_201", *more)
    with pytest.raises(WorkdirError, match=f"space.name was {name}, is nas_bench_201"):
        two_stage.search(other, tmp_path)
    if method == "ista":
        shown = contents.inspect(tmp_path)["architecture"]
        assert [len(node["connections"]) for node in shown["nodes"][:2]] == list(
            map(space.kept, range(2))
        )


def test_noise_and_zero_are_trained(tmp_path):
    """Zero can be exported, noise cannot: it is no function of an image."""
    cells = {
        "none": [[("none", 0), ("sep_conv_3x3", 1)], [("none", 2), ("skip_connect", 0)]],
        "noise": [[("noise", 0), ("sep_conv_3x3", 1)], [("noise", 2), ("skip_connect", 0)]],
    }
    for name, cell in cells.items():
        genotype = Genotype(cell, (2, 3), cell, (2, 3))
        config = retrain.config_for(tiny(), genotype.to_json())
        retrain.run(config, tmp_path / name)
    export(tmp_path / "none", tmp_path / "net")
    with pytest.raises(ExportError, match="cells have noise, which is no function of an image"):
        export(tmp_path / "noise", tmp_path / "no_net")


def test_operations_of_ones_own(tmp_path, monkeypatch):
    """docs/spaces.md: from the search to an export that classifies."""
    monkeypatch.chdir(ROOT)
    mine = [f"{MINE}:{name}" for name in ("conv_3x3", "squeeze", "bottleneck")]
    config = tiny("search.epochs=2", f"space.operations={('skip_connect', *mine)!r}")
    result = two_stage.run(config, tmp_path / "run")
    used = {pair[0] for cell in ("normal", "reduce") for pair in result["genotype"][cell]}
    assert used & set(mine)
    about = export(tmp_path / "run", tmp_path / "net", fold=True)
    assert about["space"]["operations"] == ["skip_connect", *mine]
    if used & set(mine[1:]):
        assert RELEASE in about["left_out"] and not (tmp_path / "net" / RELEASE).exists()
    assert os.path.exists(tmp_path / "net" / MODEL)
    images = np.zeros((2, 8, 8, 1), np.uint8)
    assert np.all(np.isfinite(load_model((tmp_path / "net" / MODEL).read_bytes()).call(images)))


def test_costs_of_ones_own_operations(monkeypatch):
    """By hand: what a layer says, and about what is counted where it says nothing."""
    monkeypatch.chdir(ROOT)
    c, size = 16, 8
    said = operation_work(f"{MINE}:bottleneck", c, size, 2, RETRAIN)
    wide = 4 * c
    assert said.multiply_adds == c * wide * 64 + 9 * wide * 16 + wide * c * 16
    assert said.parameters == 2 * c * wide + 9 * wide + 2 * c
    counted = operation_work(f"{MINE}:squeeze", c, size, 1, RETRAIN).multiply_adds
    convolutions, kernels, elements = (9 * c + c * c) * 64, 2 * c * 4, c * 64
    # A sum and a product for each element are half a multiply-add each, which XLA counts too.
    assert convolutions + kernels <= counted <= convolutions + kernels + 2 * elements
