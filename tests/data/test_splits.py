"""Images are divided as a plain loop divides them: each is used once, in the shares asked for.

The images carry their own number as the label, so that each can be followed.
"""

import numpy as np
import pytest
from ml_collections import ConfigDict

from istanas_jax.data.dataset import Dataset, Split, batch_indices
from istanas_jax.data.preparation import Preparation
from istanas_jax.data.splits import batch_shapes, check_batches, divide_training, hold_out

DIVIDE, ORDER = 1, 2  # first words of the seeds, which must stay: runs are resumed with them


def numbered(num: int, size: int = 4) -> Dataset:
    images = Split(np.zeros((num, size, size, 1), np.uint8), np.arange(num, dtype=np.int32))
    mean = std = np.ones(1, np.float32)
    how = Preparation(size, channels=1)
    return Dataset("numbered", images, ("a", "b"), mean, std, lambda: images, how)


def config(*, max_images=0, holdout=0.0, weights=0.5, seed=3, **data) -> ConfigDict:
    data |= {"max_images": max_images, "holdout_fraction": holdout, "pad": 0}
    search = {"weights_fraction": weights, "batch": 2, "epochs": 1}
    return ConfigDict({"seed": seed, "schedule": "two_stage", "data": data, "search": search})


def numbers(part: Split | None) -> list[int]:
    return [] if part is None else part.labels.tolist()


def loop(items: list[int], count: int, seed: int) -> tuple[list[int], list[int]]:
    """Give the first `count` places of a shuffled list to the first part, keeping the order."""
    chosen = set()
    for place in np.random.default_rng([DIVIDE, seed]).permutation(len(items)):
        if len(chosen) < count:
            chosen.add(items[place])
    return [i for i in items if i in chosen], [i for i in items if i not in chosen]


@pytest.mark.parametrize("num", [10, 37, 100])
@pytest.mark.parametrize("limit", [0, 9, 200])
@pytest.mark.parametrize("holdout", [0.0, 0.25])
@pytest.mark.parametrize("weights", [0.5, 0.8])
def test_parts_are_those_of_a_loop(num, limit, holdout, weights):
    given, dataset = config(max_images=limit, holdout=holdout, weights=weights), numbered(num)
    used = list(range(num))
    if 0 < limit < num:
        used, _ = loop(used, limit, 3)
    kept, held = loop(used, round(len(used) * (1 - holdout)), 3)
    w, b = loop(kept, round(len(kept) * weights), 3)
    assert [numbers(part) for part in hold_out(given, dataset)] == [kept, held]
    assert [numbers(part) for part in divide_training(given, dataset)] == [w, b, held]


@pytest.mark.parametrize("num", [10, 37, 100])
def test_parts_are_disjoint_and_complete(num):
    w, b, held = map(numbers, divide_training(config(holdout=0.3, weights=0.6), numbered(num)))
    assert sorted(w + b + held) == list(range(num))
    assert abs(len(held) - 0.3 * num) <= 0.5
    assert abs(len(w) - 0.6 * (num - len(held))) <= 0.5
    # Search and training on its own hold out the same images.
    assert numbers(hold_out(config(holdout=0.3), numbered(num))[1]) == held


def test_nothing_held_out_is_none():
    assert hold_out(config(), numbered(10))[1] is None
    assert divide_training(config(), numbered(10))[2] is None


def test_a_division_depends_on_its_seed_alone():
    parts = lambda **keys: [  # noqa: E731
        numbers(part) for part in divide_training(config(holdout=0.2, **keys), numbered(50))
    ]
    assert parts(seed=3) == parts(seed=3)
    assert parts(seed=3) != parts(seed=4)
    # Runs of several seeds can share one division.
    assert parts(seed=4, division_seed=3) == parts(seed=3)


def test_batches_are_those_of_a_loop():
    num, batch = 23, 4
    keys = {"seed": 5, "epoch": 2, "stream": 1}
    expected, current = [], []
    for number in np.random.default_rng([ORDER, 5, 2, 1]).permutation(num):
        current.append(int(number))
        if len(current) == batch:
            expected.append(current)
            current = []
    found = [indices.tolist() for indices in batch_indices(num, batch, **keys)]
    assert found == expected  # the last three images are left out
    parts = numbered(num).train.batches(batch_indices(num, batch, **keys), seed=None)
    assert [labels.tolist() for _, labels in parts] == expected


def test_batch_shapes_are_those_of_batches():
    train = numbered(10).train
    ((images, labels),) = train.batches([np.arange(4)], seed=None)
    for shape, array in zip(batch_shapes(train, 4), (images, labels), strict=True):
        assert (shape.shape, shape.dtype) == (array.shape, array.dtype)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (0.9, "search.batch is 2, but there are 1 images for b"),
        (0.1, "search.batch is 2, but there are 1 images for W"),
        (0.5, None),
    ],
)
def test_parts_must_fill_a_batch(weights, words):
    given = config(weights=weights)
    if words is None:
        check_batches(given, numbered(10))
    else:
        with pytest.raises(ValueError, match=words):
            check_batches(given, numbered(10))


def test_squares_of_pixels_must_fill_the_image():
    given = config()
    given.search.shrink = 2
    check_batches(given, numbered(10))
    given.search.shrink = 3
    with pytest.raises(ValueError, match=r"search\.shrink is 3, it must divide the images' 4 pix"):
        check_batches(given, numbered(10))


def test_a_crop_must_meet_the_image():
    given = config()
    given.data.pad = 4
    with pytest.raises(ValueError, match=r"data\.pad is 4, it must be below the images' 4 pixels"):
        check_batches(given, numbered(10))
