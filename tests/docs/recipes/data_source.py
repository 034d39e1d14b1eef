"""Reads stripes through the same function as a run does, and looks at the pixels."""

import numpy as np
from ml_collections import ConfigDict

from istanas_jax.data.dataset import load_dataset
from istanas_jax.data.errors import DataError


def config(**changes):
    keys = {"dir": "", "classes": 2, "image_size": 8, "image_channels": 1, "test_fraction": 0.25}
    return ConfigDict({"name": "stripes", "mean": (), "std": ()} | keys | changes)


found = load_dataset(config())
test = found.test()
assert found.class_names == ("across", "down")
assert (len(found.train), len(test)) == (150, 50)
for split in (found.train, test):
    for image, label in zip(split.images, split.labels, strict=True):
        along = 1 - label  # across: a row has one value, down: a column has
        assert (np.ptp(image, axis=along) == 0).all() and np.ptp(image) > 0
for changes, words in (
    ({"name": "/nowhere/stripes"}, "data folder /nowhere/stripes does not exist"),
    ({"name": ""}, "stripes"),
    ({"stream": True}, "stripes cannot be streamed"),
):
    try:
        load_dataset(config(**changes))
    except DataError as error:
        assert words in str(error), error
    else:
        raise AssertionError(changes)
