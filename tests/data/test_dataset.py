"""The embedded data, configs that do not fit the data, and orders that can be repeated."""

import numpy as np
import pytest
from small_sets import config

from istanas_jax.data import dataset
from istanas_jax.data.dataset import DataError


def test_digits():
    found = dataset.load_dataset(
        config("digits", classes=10, image_size=8, image_channels=1, test_fraction=0.2)
    )
    test = found.test()
    assert (found.classes, found.image_size, found.image_channels) == (10, 8, 1)
    assert len(found.train.labels) + len(test.labels) == 1797
    assert found.train.images.dtype == np.uint8
    assert found.train.labels.dtype == np.int32
    assert (found.train.images.min(), found.train.images.max()) == (0, 255)
    share = np.bincount(test.labels) / np.bincount(np.r_[test.labels, found.train.labels])
    assert (abs(share - 0.2) < 0.01).all()
    again = dataset.load_dataset(config("digits", test_fraction=0.2))
    np.testing.assert_array_equal(again.test().images, test.images)
    pixels = found.train.images.astype(np.float64) / 255
    np.testing.assert_allclose(found.mean, [pixels.mean()], rtol=1e-6)
    np.testing.assert_allclose(found.std, [pixels.std()], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"classes": 7}, "classes 10, but the config says 7"),
        ({"image_size": 32}, "image_size 8"),
        ({"image_channels": 3}, "image_channels 1"),
        ({"mean": (0.1, 0.2)}, "mean has 2 values for 1 channel"),
        ({"std": (0.0,)}, "above 0"),
        ({"test_fraction": 0.0}, "no test images of its own"),
        ({"test_fraction": 1.0}, "no test images of its own"),
        ({"test_fraction": 1e-4}, "classes are too small"),
    ],
)
def test_config_must_fit_the_data(change, words):
    with pytest.raises(DataError, match=words):
        dataset.load_dataset(config("digits", **change))


@pytest.mark.parametrize(("num", "fraction"), [(10, 0.5), (11, 0.3), (5, 0.0), (5, 1.0)])
def test_divide(num, fraction):
    first, second = dataset.divide(num, fraction, seed=1)
    assert len(first) == round(num * fraction)
    np.testing.assert_array_equal(np.sort(np.r_[first, second]), np.arange(num))
    assert (np.diff(first) > 0).all()
    assert (np.diff(second) > 0).all()


def test_orders_depend_on_every_argument():
    base = {"seed": 0, "epoch": 0, "stream": 0}
    orders = [
        tuple(dataset.order(30, **base | change)) for change in ({}, {}, *({k: 1} for k in base))
    ]
    assert orders[0] == orders[1]
    assert len(set(orders)) == 4
    assert all(sorted(order) == list(range(30)) for order in orders)
    assert (dataset.divide(30, 0.5, seed=0)[0] != dataset.divide(30, 0.5, seed=1)[0]).any()


def test_batches_resume_in_the_middle():
    keys = {"seed": 5, "epoch": 2, "stream": 1}
    straight = list(dataset.batch_indices(23, 4, **keys))
    assert [len(batch) for batch in straight] == [4] * 5
    assert len(set(np.concatenate(straight))) == 20
    for first in range(6):
        resumed = list(dataset.batch_indices(23, 4, **keys, first=first))
        assert len(resumed) == 5 - first
        for a, b in zip(resumed, straight[first:], strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(DataError, match="do not fill a batch of 4"):
        dataset.batch_indices(3, 4, **keys)  # at the call, not at the first batch


@pytest.mark.parametrize("num", [3, 8, 9])
def test_padded_indices_have_every_image_once(num):
    seen = []
    for indices, weights in dataset.padded_indices(num, 4):
        assert indices.shape == weights.shape == (4,)
        assert (indices < num).all()
        real = weights == 1
        assert (weights[~real] == 0).all()
        seen += list(indices[real])
    assert seen == list(range(num))
