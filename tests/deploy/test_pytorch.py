"""network.py, with torch alone, gives the network's own logits and can be trained further."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from random_networks import CLASSES, assert_close, pixels, trained

from istanas_jax.deploy.export import logits
from istanas_jax.deploy.pytorch_source import pytorch_source
from istanas_jax.deploy.release_state import to_release_state

CASES = [("retrain", "imagenet", 3), ("one_stage", "cifar", 1), ("search", "cifar", 3)]
ALONE = """
import sys
for name in ("istanas_jax", "jax", "numpy", "safetensors"):
    sys.modules[name] = None  # an import fails
import torch
from network import CLASS_NAMES, load
model = load()
images = torch.frombuffer(bytearray(open("images", "rb").read()), dtype=torch.uint8)
images = images.reshape(3, *map(int, sys.argv[1:]))
with torch.no_grad():
    logits = model(images)
open("logits", "wb").write(bytes(logits.reshape(-1).contiguous().view(torch.uint8).tolist()))
model.train()(images.repeat(2, 1, 1, 1)).sum().backward()
assert all(p.grad.isfinite().all() for p in model.parameters())
print(*CLASS_NAMES, sep="|")
"""


def write(network, folder):
    state = to_release_state(network.variables, network.net)
    np.savez(folder / "pytorch_state.npz", **state)
    source = pytorch_source(network, "A small network", "pytorch_state.npz")
    (folder / "network.py").write_text(source)
    return source


@pytest.mark.parametrize(("regime", "stem", "channels"), CASES)
def test_logits_are_those_of_the_network(regime, stem, channels, tmp_path):
    pytest.importorskip("torch", reason="torch, which network.py needs, is not installed")
    network = trained(regime, stem, channels)
    write(network, tmp_path)
    images = pixels(network, 3)
    (tmp_path / "images").write_bytes(images.transpose(0, 3, 1, 2).tobytes())
    command = [sys.executable, "-c", ALONE, str(channels), *[str(network.image_size)] * 2]
    environment = os.environ | {"PYTHONPATH": "", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "|".join(CLASSES)
    found = np.frombuffer((tmp_path / "logits").read_bytes(), np.float32).reshape(3, len(CLASSES))
    own = jax.jit(lambda v, x: logits(network, v, x))(network.variables, images)
    assert_close(found, own)


@pytest.mark.parametrize(("regime", "stem", "channels"), CASES)
def test_text_is_python_whatever_classes_are_called(regime, stem, channels, tmp_path):
    nasty = ('"""', "\\", "{0}", "a'b\nimport os")
    network = trained(regime, stem, channels)._replace(class_names=nasty)
    source = write(network, tmp_path)
    names = source[source.index("CLASS_NAMES = ") + 14 : source.index("\nMEAN")]
    compile(source, "network.py", "exec")
    assert eval(names, {}) == nasty
    assert max(map(len, source.splitlines())) < 400
