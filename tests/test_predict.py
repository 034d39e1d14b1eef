"""Image files through a run's network and its export: the same classes, errors in words."""

import json

import cv2
import jax
import numpy as np
import pytest

from istanas_jax import predict as predicting
from istanas_jax.export import export, logits
from istanas_jax.genotype import Genotype
from istanas_jax.image_sources import DataError
from istanas_jax.predict import lines, predict
from istanas_jax.target_net import TargetNet, init_target
from istanas_jax.trained import Trained, save_trained

CELL = [("skip_connect", 0), ("sep_conv_3x3", 1)]
NET = TargetNet(Genotype(CELL, [2], CELL, [2]), classes=4, cells=3, channels=4)
CLASSES = ("ant", "bee", "cat", "dog")


@pytest.fixture(scope="module")
def network() -> Trained:
    variables = init_target(NET, jax.random.key(0), 8)
    kernel = variables["params"]["classifier"]["linear"]["kernel"]
    variables["params"]["classifier"]["linear"]["kernel"] = 20 * kernel  # decided classes
    return Trained(NET, variables, 8, (0.5,) * 3, (0.25,) * 3, CLASSES)


@pytest.fixture(scope="module")
def sources(network, tmp_path_factory):
    root = tmp_path_factory.mktemp("sources")
    save_trained(root / "run", network)
    export(root / "run", root / "out")
    return {"run": root / "run", "export": root / "out", "model": root / "out" / "model.stablehlo"}


@pytest.fixture
def folder(tmp_path):
    """Five images of 8 x 8, and files that are none."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "images"
    for name in ("1.png", "2.PNG", "deep/er/3.png", "deep/4.bmp", "5.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        image = cv2.imencode(".png", rng.integers(0, 256, (8, 8, 3), np.uint8))[1]
        (folder / name).write_bytes(image.tobytes())
    (folder / "notes.txt").write_text("no image")
    (folder / ".hidden.png").write_text("no image")
    (folder / ".git").mkdir()
    (folder / ".git" / "6.png").write_text("no image")
    return folder


@pytest.mark.parametrize("kind", ["run", "export", "model"])
def test_probabilities_are_those_of_the_network(kind, sources, network, folder, monkeypatch):
    monkeypatch.setattr(predicting, "BATCH", 2)  # the last batch is not full
    found = list(predict(sources[kind], [folder], top=4))
    paths = ["1.png", "2.PNG", "5.png", "deep/4.bmp", "deep/er/3.png"]
    assert [p.path for p in found] == [str(folder / path) for path in paths]
    images = np.stack([cv2.imread(p.path)[..., ::-1] for p in found])
    shares = jax.nn.softmax(jax.jit(lambda x: logits(network, network.variables, x))(images))
    for prediction, share in zip(found, shares, strict=True):
        assert prediction.class_names == tuple(CLASSES[n] for n in np.argsort(-share))
        np.testing.assert_allclose(prediction.probabilities, sorted(share)[::-1], 1e-4, 1e-6)
    assert len({p.class_names for p in found}) > 1  # the images matter


def test_export_needs_nothing_but_its_own_two_files(sources, folder, tmp_path):
    for name in ("model.stablehlo", "network.json"):
        (tmp_path / name).write_bytes((sources["export"] / name).read_bytes())
    found = list(predict(tmp_path, [folder / "1.png", folder / "5.png"]))
    assert found == list(predict(sources["model"], [folder / "1.png", folder / "5.png"]))


def test_images_get_the_size_and_channels_of_the_network(sources, tmp_path):
    tile = np.arange(64, dtype=np.uint8).reshape(8, 8)
    cv2.imwrite(str(tmp_path / "small.png"), np.stack([tile] * 3, -1))
    cv2.imwrite(str(tmp_path / "grey.png"), tile)
    cv2.imwrite(str(tmp_path / "large.png"), np.kron(tile, np.ones((3, 3), np.uint8)))
    same = [p[1:] for p in predict(sources["run"], [tmp_path], top=2)]
    assert len(same) == 3
    assert same[0] == same[1] == same[2]


def test_lines(sources, folder):
    found = list(predict(sources["run"], [folder / "1.png"], top=2))
    (name, other), (p, q) = found[0][1:]
    path = folder / "1.png"
    assert list(lines(found)) == [f"{path}  {name} {100 * p:.1f} %, {other} {100 * q:.1f} %"]
    (line,) = lines(found, as_json=True)
    classes = [{"class": name, "probability": p}, {"class": other, "probability": q}]
    assert json.loads(line) == {"path": str(path), "classes": classes}


def test_what_cannot_be_read_is_named(sources, folder, tmp_path):
    (folder / "deep" / "broken.jpg").write_text("no image")
    with pytest.raises(DataError, match=r"deep/broken\.jpg cannot be read as an image"):
        list(predict(sources["run"], [folder]))
    with pytest.raises(DataError, match=r"gone\.png does not exist"):
        list(predict(sources["run"], [folder / "1.png", tmp_path / "gone.png"]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty has no images"):
        list(predict(sources["run"], [tmp_path / "empty"]))


def test_what_is_no_network_is_refused(sources, folder, tmp_path):
    image = [folder / "1.png"]
    with pytest.raises(ValueError, match="holds no trained network"):
        list(predict(tmp_path, image))
    (tmp_path / "model.stablehlo").write_bytes(sources["model"].read_bytes())
    with pytest.raises(ValueError, match=r"not an export's model\.stablehlo"):
        list(predict(tmp_path / "model.stablehlo", image))
    (tmp_path / "network.json").write_text('{"format": "istanas_jax export 1"}')
    with pytest.raises(ValueError, match="was not finished"):
        list(predict(tmp_path, image))
