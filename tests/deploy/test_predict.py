"""Image files through a run's network and its export: the same classes, errors in words."""

import json
import os
import re
import shutil
from pathlib import Path

import cv2
import jax
import numpy as np
import pytest

from istanas_jax.cli.main import main
from istanas_jax.data.errors import DataError
from istanas_jax.data.preparation import Preparation
from istanas_jax.deploy import predict as predicting
from istanas_jax.deploy.export import export, logits
from istanas_jax.deploy.exported import ExportError, open_export, signed
from istanas_jax.deploy.predict import lines, predict
from istanas_jax.networks.target_net import TargetNet, init_target
from istanas_jax.runs.trained_network import Trained, load_trained, save_trained
from istanas_jax.space.genotype import Genotype
from istanas_jax.storage.checkpoint_files import CheckpointError

CELL = [("skip_connect", 0), ("sep_conv_3x3", 1)]
NET = TargetNet(Genotype(CELL, [2], CELL, [2]), classes=4, cells=3, channels=4)
CLASSES = ("ant", "bee", "cat", "dog")


@pytest.fixture(scope="module")
def network() -> Trained:
    variables = init_target(NET, jax.random.key(0), 8)
    kernel = variables["params"]["classifier"]["linear"]["kernel"]
    variables["params"]["classifier"]["linear"]["kernel"] = 20 * kernel  # decided classes
    return Trained(NET, variables, Preparation(8, 3, 10), (0.5,) * 3, (0.25,) * 3, CLASSES)


@pytest.fixture(scope="module")
def sources(network, tmp_path_factory):
    root = tmp_path_factory.mktemp("sources")
    save_trained(root / "run", network)
    export(root / "run", root / "out")
    return {"run": root / "run", "export": root / "out", "model": root / "out" / "model.stablehlo"}


@pytest.fixture
def folder(tmp_path):
    """Five images of 12 x 19, and files that are none."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "images"
    for name in ("1.png", "2.PNG", "deep/er/3.png", "deep/4.bmp", "5.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        image = cv2.imencode(".png", rng.integers(0, 256, (12, 19, 3), np.uint8))[1]
        (folder / name).write_bytes(image.tobytes())
    (folder / "notes.txt").write_text("no image")
    (folder / ".hidden.png").write_text("no image")
    (folder / ".git").mkdir()
    (folder / ".git" / "6.png").write_text("no image")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("source", ["run", "export", "model"])
def test_probabilities_are_those_of_the_network(source, sources, network, folder, monkeypatch):
    monkeypatch.setattr(predicting, "BATCH", 2)  # the last batch is not full
    found = list(predict(sources[source], [folder], top=4))
    paths = ["1.png", "2.PNG", "5.png", "deep/4.bmp", "deep/er/3.png"]
    assert [p.path for p in found] == [str(folder / path) for path in paths]
    images = np.stack([network.preparation(Path(p.path).read_bytes(), p.path) for p in found])
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
    tile = np.arange(100, dtype=np.uint8).reshape(10, 10)
    cv2.imwrite(str(tmp_path / "small.png"), np.stack([tile] * 3, -1))
    cv2.imwrite(str(tmp_path / "grey.png"), tile)
    cv2.imwrite(str(tmp_path / "wide.png"), np.pad(tile, ((0, 0), (7, 7))))  # the middle is taken
    cv2.imwrite(str(tmp_path / "large.png"), np.kron(tile, np.ones((3, 3), np.uint8)))
    same = [p[1:] for p in predict(sources["run"], [tmp_path], top=2)]
    assert len(same) == 4
    assert same[0] == same[1] == same[2] == same[3]


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
    (tmp_path / "network.json").write_text('{"format": "istanas_jax export 2"}')
    with pytest.raises(ValueError, match="was not finished"):
        list(predict(tmp_path, image))


def rewritten(**changes):
    """A network.json with other values, or without a key, and with the right checksum of itself."""

    def make(about: dict) -> bytes:
        kept = {k: v for k, v in (about | changes).items() if v is not None}
        return json.dumps(signed(kept)).encode()

    return make


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is not JSON"),
        (b'{"format": "istanas_jax ex', "it is not JSON"),
        (b"\xff\x00", "it is not JSON"),
        (b"[]", "is not the network.json of an export"),
        (b"null", "is not the network.json of an export"),
        (b"{}", "is not the network.json of an export"),
        (b'{"format": 3}', "is not the network.json of an export"),
        (b'{"format": "istanas_jax export 1"}', "this version reads 'istanas_jax export 2'"),
        (
            lambda about: json.dumps(about | {"class_names": ["x"]}).encode(),
            "damaged or was edited",
        ),
        (rewritten(class_names=None), "'class_names'"),
        (rewritten(class_names={}), "class_names must be a list of names"),
        (rewritten(class_names=[1, 2]), "class_names must be a list of names"),
        (rewritten(preparation=None), "'preparation'"),
        (rewritten(preparation=[8, 3, 10]), "must have the keys size, channels, resize"),
        (rewritten(preparation={"size": 8, "channels": 3}), "must have the keys size"),
        (rewritten(preparation={"size": "8", "channels": 3, "resize": 0}), "whole numbers"),
        (rewritten(preparation={"size": 8, "channels": 3, "resize": 7}), "cannot be prepared"),
        (rewritten(files=[1]), "does not say what it should"),
        (rewritten(files={"model.stablehlo": 7}), "does not say what it should"),
        (rewritten(files={}), r"network\.json does not list it"),
    ],
)
def test_network_json_that_is_not_right(sources, folder, tmp_path, capsys, content, words):
    whole = sources["export"] / "network.json"
    if callable(content):
        content = content(json.loads(whole.read_text()))
    (tmp_path / "network.json").write_bytes(content)
    (tmp_path / "model.stablehlo").symlink_to(sources["model"])
    assert main(["predict", str(tmp_path), str(folder / "1.png")]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("istanas: ") and said.err.count("\n") == 1
    assert str(tmp_path) in said.err and re.search(words, said.err)


def flip(content: bytes, bit: int) -> bytes:
    flipped = bytearray(content)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


@pytest.mark.parametrize("name", ["model.stablehlo", "weights.safetensors", "pytorch_state.npz"])
def test_files_of_an_export_are_checked(sources, folder, tmp_path, name):
    """Cut, with one bit changed anywhere, or gone: never used."""
    shutil.copytree(sources["export"], tmp_path / "out")
    path = tmp_path / "out" / name
    whole = path.read_bytes()
    assert open_export(path.parent).read(name) == whole
    rng = np.random.default_rng(0)
    damaged = [whole[:-1], b"", whole + b"0"]
    damaged += [flip(whole, bit) for bit in rng.integers(8 * len(whole), size=20).tolist()]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ExportError, match=rf"{name} is damaged"):
            open_export(path.parent).read(name)
    if name == "model.stablehlo":
        with pytest.raises(ExportError, match=rf"{name} is damaged"):
            list(predict(path.parent, [folder / "1.png"]))
    path.unlink()
    with pytest.raises(ExportError, match=rf"{name} is missing"):
        open_export(path.parent).read(name)


def test_trained_network_is_checked(sources, tmp_path):
    """Its notes and its arrays: what is damaged is refused."""
    step = sources["run"] / "trained" / "0"
    notes = (step / "about" / "metadata").read_bytes()
    arrays = {path: path.read_bytes() for path in (step / "state").rglob("d/*")}
    damages = [{step / "about" / "metadata": notes.replace(b"bee", b"bed")}]
    damages += [{step / "about" / "metadata": notes.replace(b'"resize": 10', b'"resize": 11')}]
    # All files of arrays, since orbax keeps some that are not read.
    damages += [{path: flip(whole, 4 * len(whole)) for path, whole in arrays.items()}]
    for number, damage in enumerate(damages):
        copy = tmp_path / str(number)
        shutil.copytree(sources["run"], copy)
        for path, content in damage.items():
            assert content != path.read_bytes()
            (copy / path.relative_to(sources["run"])).write_bytes(content)
        with pytest.raises(CheckpointError, match=r"trained/0 cannot be read"):
            load_trained(copy)


def test_top(sources, folder, capsys):
    image = str(folder / "1.png")
    with pytest.raises(DataError, match="top is 0: name at least 1 class"):
        list(predict(sources["run"], [image], top=0))
    for refused in ("0", "-1"):
        with pytest.raises(SystemExit) as stop:
            main(["predict", str(sources["run"]), image, "--top", refused])
        assert stop.value.code == 2
        assert f"{refused} is not a whole number from 1" in capsys.readouterr().err
    (many,) = predict(sources["run"], [image], top=100)
    assert sorted(many.class_names) == list(CLASSES)


def test_pipes_are_not_waited_for(sources, folder, tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(DataError, match=r"pipe\.png: is not a regular file"):
        list(predict(sources["run"], [tmp_path / "pipe.png"]))
    os.mkfifo(tmp_path / "network.json")
    with pytest.raises(ExportError, match=r"network\.json: is not a regular file"):
        list(predict(tmp_path, [folder / "1.png"]))
    (tmp_path / "network.json").unlink()
    shutil.copy(sources["export"] / "network.json", tmp_path)
    os.mkfifo(tmp_path / "model.stablehlo")
    with pytest.raises(ExportError, match=r"model\.stablehlo: is not a regular file"):
        list(predict(tmp_path, [folder / "1.png"]))
