"""`predict` shows a network an image as its evaluation did, whatever set it was trained on.

test_predict shows the same for exports.py.
"""

import json
from functools import partial

import cv2
import jax
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict
from pictures import encode, photo

from istanas_jax.data.dataset import Dataset, Images, load_dataset
from istanas_jax.data.preparation import Preparation
from istanas_jax.deploy.predict import predict
from istanas_jax.devices.parallel import Devices
from istanas_jax.networks.target_net import TargetNet, init_target
from istanas_jax.runs.trained_network import load_trained, make_trained, save_trained
from istanas_jax.space.genotype import Genotype
from istanas_jax.storage.checkpoint_files import CheckpointError, sign
from istanas_jax.training import steps
from istanas_jax.training.evaluation import Evaluator
from istanas_jax.training.objective import Recipe
from istanas_jax.training.states import TrainState

CELL = [("skip_connect", 0), ("sep_conv_3x3", 1)]
NET = TargetNet(Genotype(CELL, [2], CELL, [2]), classes=3, cells=1, channels=4)
SIZE, RESIZE = 16, 20
MEAN, STD = (0.5,) * 3, (0.25,) * 3
# Streamed images are cropped, those in memory squeezed; arrays have their size already.
SETS = {"streamed": RESIZE, "in memory": 0, "npz": 0}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Photographs of many shapes in class folders, and the same squeezed in an .npz."""
    root = tmp_path_factory.mktemp("sets")
    arrays = {"images": [], "labels": []}
    for i in range(12):
        split, label = ("train", "test")[i >= 6], i % 3
        folder = root / "folder" / split / "abc"[label]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i}.jpg").write_bytes(encode(photo(i)))
        square = cv2.resize(np.asarray(photo(i)), (SIZE, SIZE), interpolation=cv2.INTER_AREA)
        arrays["images"].append(square)
        arrays["labels"].append(label)
    train = {key: np.array(values[:6]) for key, values in arrays.items()}
    test = {key: np.array(values[6:]) for key, values in arrays.items()}
    np.savez(root / "set.npz", **train, **{f"test_{key}": value for key, value in test.items()})
    (root / "files").mkdir()
    for i, image in enumerate(test["images"]):
        cv2.imwrite(str(root / "files" / f"{i}.png"), image[..., ::-1])
    return root


def dataset(images, source: str) -> Dataset:
    name = images / ("set.npz" if source == "npz" else "folder")
    keys = {"name": str(name), "classes": 0, "image_size": SIZE, "image_channels": 3}
    keys |= {"mean": MEAN, "std": STD, "test_fraction": 0.0, "dir": ""}
    return load_dataset(ConfigDict(keys | {"stream": source == "streamed", "resize": RESIZE}))


def files_of(images, source: str) -> tuple[list, Images]:
    """Files of the test images in the order of the split."""
    folder = "files" if source == "npz" else "folder/test"
    return sorted((images / folder).rglob("*.[jp][pn]g")), dataset(images, source).test()


@pytest.fixture(scope="module")
def weights():
    variables = init_target(NET, jax.random.key(0), SIZE)
    kernel = variables["params"]["classifier"]["linear"]["kernel"]
    variables["params"]["classifier"]["linear"]["kernel"] = 20 * kernel  # decided classes
    return variables


@pytest.fixture(scope="module")
def losses(weights):
    """The loss of each image of a split, as evaluation in training computes it."""
    devices = Devices()
    recipe = Recipe(MEAN, STD, 0, False, 0, 0.0, 0.0, 0.0, False, 1, 1)
    step = partial(steps.evaluate, net=NET, recipe=recipe)
    evaluate = Evaluator(step, 2, devices)
    state = devices.replicate(TrainState.create(weights, optax.sgd(0.1), 0))
    return lambda split: [
        evaluate(state, split.take(np.array([i])))["loss"] for i in range(len(split))
    ]


@pytest.fixture(scope="module")
def networks(images, weights, tmp_path_factory):
    """The folder of a run on each set."""
    root = tmp_path_factory.mktemp("runs")
    for source in SETS:
        trained = make_trained(
            NET, weights["params"], weights["batch_stats"], dataset(images, source)
        )
        save_trained(root / source, trained)
    return root


@pytest.mark.parametrize("source", SETS)
def test_predict_sees_what_evaluation_saw(source, images, networks, losses):
    files, split = files_of(images, source)
    expected = losses(split)
    names = dataset(images, source).class_names
    found = []
    for prediction, label in zip(
        predict(networks / source, files, top=3), split.read_labels(), strict=True
    ):
        of_class = dict(zip(prediction.class_names, prediction.probabilities, strict=True))
        found.append(-np.log(of_class[names[label]]))
    # Two programs: sums run in another order.
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5)


def test_it_matters_how_images_are_prepared(images, networks):
    files, _ = files_of(images, "streamed")
    one, other = ([p[1:] for p in predict(networks / source, files)] for source in list(SETS)[:2])
    shares = [max(p) for _, p in one], [max(p) for _, p in other]
    assert np.abs(np.subtract(*shares)).max() > 0.01


@pytest.mark.parametrize("source", SETS)
def test_every_pixel_is_the_same(images, networks, source):
    files, split = files_of(images, source)
    how = load_trained(networks / source).preparation
    assert how == Preparation(SIZE, 3, SETS[source])
    (pixels, _), *_ = split.batches([np.arange(len(files))], seed=None)
    for file, expected in zip(files, pixels, strict=True):
        np.testing.assert_array_equal(how(file.read_bytes(), file), expected)


@pytest.mark.parametrize(
    ("config", "resize"),
    [
        ({"data": {"name": "folder", "stream": True, "resize": RESIZE}}, RESIZE),
        ({"data": {"name": "folder", "stream": True, "resize": 0}}, SIZE),
        ({"data": {"name": "folder"}}, 0),
        (None, None),
        ({"schedule": "retrain"}, None),
    ],
)
def test_networks_of_before(networks, config, resize):
    """What an older version wrote has no preparation: the config of the run tells it, or nobody."""
    run = networks / "older"
    if not run.exists():
        save_trained(run, load_trained(networks / "in memory"))
        file = run / "trained" / "0" / "about" / "metadata"
        about = json.loads(file.read_text())
        file.write_text(
            json.dumps(sign({k: about[k] for k in about if k not in ("crc32", "preparation")}))
        )
    (run / "config.json").unlink(missing_ok=True)
    if config is not None:
        (run / "config.json").write_text(json.dumps(config))
    if resize is None:
        with pytest.raises(CheckpointError, match="older does not say how images were prepared"):
            load_trained(run)
    else:
        assert load_trained(run).preparation == Preparation(SIZE, 3, resize)
