"""What is taken away gives the network's own logits, also where this package is not installed."""

import json
import subprocess
import sys
from functools import cache

import jax
import numpy as np
import pytest
import safetensors
from etils import epath
from flax.traverse_util import flatten_dict
from places import ROOT
from random_networks import CLASSES, GENOTYPE, ROUNDING, assert_close, pixels, trained

from istanas_jax.api import load_run
from istanas_jax.deploy import export as exporting
from istanas_jax.deploy import latency, onnx_model, pytorch_source
from istanas_jax.deploy.export import export, load_model, logits, stablehlo
from istanas_jax.deploy.export_texts import table
from istanas_jax.deploy.folding import fold_batch_norms
from istanas_jax.deploy.release_state import load_release_state
from istanas_jax.runs.trained_network import load_trained, save_trained
from istanas_jax.space.genotype import Genotype


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """(regime, fold) -> the folder and the description of an export, made once."""

    @cache
    def make(regime, fold):
        root = tmp_path_factory.mktemp("export")
        save_trained(root / "run", trained(regime))
        return root / "out", export(root / "run", root / "out", fold=fold)

    return make


CASES = [("retrain", False), ("one_stage", True)]


@pytest.mark.slow
def test_paths_may_be_relative(exports, monkeypatch):
    """A run named by the folder one stands in, as the README does: exported, loaded, predicted."""
    out, _ = exports("retrain", False)
    monkeypatch.chdir(out.parent)
    for relative in ("run", epath.Path("run")):
        loaded = load_trained(relative)
        jax.tree.map(np.testing.assert_array_equal, loaded.variables, trained("retrain").variables)
    (out.parent / "run" / "config.json").write_text("{}")
    run = load_run("run")
    monkeypatch.chdir("/")  # a notebook may go elsewhere
    assert run.network().class_names == CLASSES


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "fold"), CASES)
def test_every_file_is_written_and_was_compared(exports, regime, fold):
    out, results = exports(regime, fold)
    network = trained(regime)
    about = json.loads((out / "network.json").read_text())
    assert about == {
        key: value for key, value in json.loads(json.dumps(results)).items() if key != "out"
    }
    names = {"genotype.json", "weights.safetensors", "model.stablehlo", "pytorch_state.npz"}
    names |= {"model.onnx"} if onnx_model.installed() else set()
    others = {"network.json", "README.md", "network.py"}
    assert {path.name for path in out.iterdir()} == names | others
    compared = names - {"genotype.json"} | ({"network.py"} if pytorch_source.installed() else set())
    for name in compared:
        assert results["files"][name]["largest_difference"] <= ROUNDING * about["largest_logit"]
        assert name in table(results)
    assert results["files"]["pytorch_state.npz"]["largest_difference"] == 0
    for path in out.iterdir():  # an export tells nothing of the machine that it was made on
        assert str(ROOT).encode() not in path.read_bytes()
    assert Genotype.from_json((out / "genotype.json").read_text()) == GENOTYPE
    assert about["class_names"] == list(CLASSES)
    assert about["folded"] is fold
    leaves = jax.tree.leaves(network.variables["params"])
    assert about["parameters"] == sum(leaf.size for leaf in leaves)


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "fold"), CASES)
def test_runs_where_the_package_is_not(exports, regime, fold, tmp_path):
    out, _ = exports(regime, fold)
    network = trained(regime)
    images = pixels(network, 5)  # another number than when it was checked
    np.save(tmp_path / "images.npy", images)
    code = """
import sys
for name in ("istanas_jax", "flax", "safetensors"):
    sys.modules[name] = None  # an import fails
import pathlib, jax.export, numpy
model = jax.export.deserialize(bytearray(pathlib.Path(sys.argv[1]).read_bytes()))
assert model.platforms == ("cpu", "cuda", "tpu")
numpy.save("logits.npy", model.call(numpy.load("images.npy")))
"""
    command = [sys.executable, "-I", "-c", code, str(out / "model.stablehlo")]
    subprocess.run(command, cwd=tmp_path, check=True)
    found = np.load(tmp_path / "logits.npy")
    assert found.dtype == np.float32
    assert_close(found, jax.jit(lambda v, x: logits(network, v, x))(network.variables, images))


@pytest.mark.slow
def test_weights_by_their_documented_names(exports):
    out, _ = exports("retrain", False)
    with safetensors.safe_open(out / "weights.safetensors", "numpy") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
        metadata = file.metadata()
    expected = flatten_dict(trained("retrain").variables, sep="/")
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])
    assert found["params/cell_00/node0_connection0/depthwise0"].shape == (3, 3, 4)
    assert json.loads(metadata["class_names"]) == list(CLASSES)
    assert json.loads(metadata["mean"]) == [0.5, 0.4, 0.3]
    assert metadata["description"].startswith("ISTA-NAS network of 3 cells")


@pytest.mark.slow
def test_pytorch_state_keeps_the_batch_norms(exports):
    out, _ = exports("one_stage", True)
    network = trained("one_stage")
    state = np.load(out / "pytorch_state.npz")
    assert state["stem.0.weight"].shape == (12, 3, 3, 3)
    jax.tree.map(
        np.testing.assert_array_equal, load_release_state(state, network.net), network.variables
    )


@pytest.mark.parametrize(
    ("regime", "pools", "identities"), [("retrain", 0, 0), ("search", 6, 0), ("one_stage", 6, 3)]
)
def test_folding_leaves_norms_that_follow_no_convolution(regime, pools, identities):
    network = trained(regime)
    folded = fold_batch_norms(network.variables, network.net)
    assert len(flatten_dict(folded["batch_stats"])) == pools + identities
    names = [path[-1] for path in flatten_dict(folded["params"])]
    assert names.count("scale0") == (pools + identities if regime == "one_stage" else 0)
    assert "bias1" in names  # of a separable convolution


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "stem"), [("retrain", "imagenet"), ("search", "cifar")])
def test_folded_logits(regime, stem):
    network = trained(regime, stem)
    images = pixels(network, 3)
    own = jax.jit(lambda v, x: logits(network, v, x))(network.variables, images)
    folded = fold_batch_norms(network.variables, network.net)
    assert_close(jax.jit(lambda v, x: logits(network, v, x, folded=True))(folded, images), own)


def test_folder_of_others_is_refused(tmp_path):
    save_trained(tmp_path / "run", trained("retrain"))
    for name, text in (
        ("notes.txt", "mine"),
        ("network.json", "[1]"),
        ("network.json", "not JSON"),
    ):
        out = tmp_path / str(len(text))
        out.mkdir()
        (out / name).write_text(text)
        with pytest.raises(ValueError, match="holds other files and no export"):
            export(tmp_path / "run", out)
        assert [(p.name, p.read_text()) for p in out.iterdir()] == [(name, text)]


@pytest.mark.slow
def test_wrong_file_is_noticed_and_export_can_be_repeated(tmp_path, monkeypatch):
    save_trained(tmp_path / "run", trained("retrain"), run=2)
    damaged = jax.tree.map(lambda x: x * 1.01, trained("retrain").variables)
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "_from_safetensors", lambda _: damaged)
        with pytest.raises(
            ValueError, match=r"weights\.safetensors.* differ from the network's by"
        ):
            export(tmp_path / "run", tmp_path / "out", run=2)
    assert not (tmp_path / "out" / "weights.safetensors").exists()
    results = export(tmp_path / "run", tmp_path / "out", run=2)
    assert results["files"]["weights.safetensors"]["largest_difference"] == 0
    assert not list((tmp_path / "out").glob(".*"))


def test_grey_images():
    network = trained("retrain", channels=1)
    model = load_model(stablehlo(network, network.variables))
    assert str(model.in_avals[0]) == "uint8[batch,8,8,1]"


@pytest.mark.slow
def test_an_export_says_that_its_model_is_a_program(exports):
    out, results = exports("retrain", False)
    assert "The file is a program" in (out / "README.md").read_text()
    assert "model.stablehlo is a program" in table(results)
    assert "jax promises to load it for 6 months" in (out / "README.md").read_text()
    assert f"for 6 months after the release of jax {jax.__version__}" in table(results)
    about = dict(results, files={"network.py": {"bytes": 1}})
    assert "model.onnx            not written: it needs the packages onnx and" in table(about)
    assert "network.py                       1 bytes  not run: torch is not" in table(about)


@pytest.mark.slow
def test_latency_of_each_program_that_runs_here(exports, monkeypatch):
    out, _ = exports("retrain", False)
    monkeypatch.setattr(latency, "SECONDS", 0.0)
    found = latency.measure(out)
    files = ["model.stablehlo"]
    files += ["model.onnx"] if onnx_model.installed() else []
    files += ["network.py"] if pytorch_source.installed() else []
    assert [(row["file"], row["batch"]) for row in found["rows"]] == [
        (name, batch) for name in files for batch in (1, 32)
    ]
    assert all(0 < row["fastest"] <= row["milliseconds"] for row in found["rows"])
    assert len(latency.table(found).splitlines()) == 2 + len(found["rows"])
