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

from istanas_jax.api import load_run
from istanas_jax.data.preparation import Preparation
from istanas_jax.deploy import export as exporting
from istanas_jax.deploy.export import export, load_model, logits, stablehlo, table
from istanas_jax.deploy.folding import fold_batch_norms
from istanas_jax.deploy.release_state import load_release_state
from istanas_jax.networks.target_net import TargetNet, init_target
from istanas_jax.runs.trained_network import Trained, load_trained, save_trained
from istanas_jax.space.genotype import Genotype

# Every kind of operation with each stride it can have.
NORMAL = [("sep_conv_3x3", 0), ("dil_conv_3x3", 1), ("skip_connect", 0), ("max_pool_3x3", 2)]
NORMAL += [("avg_pool_3x3", 1), ("conv_7x1_1x7", 3), ("dil_conv_3x3", 0), ("sep_conv_3x3", 2)]
REDUCE = [("skip_connect", 0), ("conv_7x1_1x7", 1), ("sep_conv_3x3", 0), ("skip_connect", 2)]
REDUCE += [("max_pool_3x3", 1), ("dil_conv_3x3", 0), ("avg_pool_3x3", 1), ("sep_conv_3x3", 3)]
GENOTYPE = Genotype(NORMAL, range(2, 6), REDUCE, range(2, 6))
CLASSES = ("ant", "bee", "wasp or fly")
# A share of the largest logit: sums run in another order.
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
    assert {path.name for path in out.iterdir()} == names | {"network.json", "README.md"}
    for name in names - {"genotype.json"}:
        assert results["files"][name]["largest_difference"] <= ROUNDING * about["largest_logit"]
        assert name in table(results)
    assert results["files"]["pytorch_state.npz"]["largest_difference"] == 0
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
