"""The ONNX file gives the network's own logits by onnxruntime, for any number of images."""

import jax
import numpy as np
import pytest
from random_networks import assert_close, pixels, trained

from istanas_jax.cli.main import main
from istanas_jax.deploy.export import logits
from istanas_jax.deploy.onnx_model import OPSETS, check_opset, onnx_model, run_onnx
from istanas_jax.runs.trained_network import save_trained

REASON = "the extra `onnx` is not installed"
onnx = pytest.importorskip("onnx", reason=REASON)
pytest.importorskip("onnxruntime", reason=REASON)


# Odd sizes and the batch norms of each regime: those after pools and identities are not folded.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("regime", "stem", "channels"),
    [("retrain", "imagenet", 3), ("one_stage", "cifar", 1), ("search", "cifar", 3)],
)
def test_logits_are_those_of_the_network(regime, stem, channels):
    network = trained(regime, stem, channels)
    images = pixels(network, 3)
    own = np.asarray(jax.jit(lambda v, x: logits(network, v, x))(network.variables, images))
    content = onnx_model(network)
    assert_close(run_onnx(content, images), own)
    assert_close(run_onnx(content, images[:1]), own[:1])  # any number of images
    assert np.ptp(own) > 1e-2 * abs(own).max()  # logits that would not agree by chance


@pytest.mark.parametrize("opset", [OPSETS[0], OPSETS[-1]])
def test_oldest_and_newest_opset(opset):
    network = trained("one_stage")
    images = pixels(network, 2)
    content = onnx_model(network, opset)
    assert [entry.version for entry in onnx.load_from_string(content).opset_import] == [opset]
    assert_close(run_onnx(content, images), run_onnx(onnx_model(network), images))


@pytest.mark.parametrize("opset", [OPSETS[0] - 1, OPSETS[-1] + 1])
def test_unsupported_opset_is_refused_first(opset, tmp_path, capsys):
    save_trained(tmp_path / "run", trained("retrain"))
    words = ["export", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--opset", str(opset)]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said == f"istanas: opset {opset} is not supported: choose 13 to {OPSETS[-1]}\n"
    assert not (tmp_path / "out").exists()


def test_opset_without_the_extra(monkeypatch):
    monkeypatch.setattr("istanas_jax.deploy.onnx_model.util.find_spec", lambda name: None)
    check_opset(None)
    with pytest.raises(ValueError, match=r"--opset 17 is for model\.onnx, which needs"):
        check_opset(17)
