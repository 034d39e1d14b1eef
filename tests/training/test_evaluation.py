"""Loss and accuracy over a split are those of plain numpy, whatever the batch leaves over."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from istanas_jax.data.in_memory import Split
from istanas_jax.devices.parallel import Devices
from istanas_jax.training.evaluation import Evaluator, summary
from istanas_jax.training.states import Totals
from istanas_jax.training.steps import masked_totals

CLASSES = 7
RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(4 * 4 * 2, CLASSES)).astype(np.float32)


def split(num: int) -> Split:
    images = RNG.integers(0, 256, (num, 4, 4, 2), dtype=np.uint8)
    return Split(images, RNG.integers(0, CLASSES, num).astype(np.int32))


def step(weights, images, labels, mask):
    """A linear network in place of a deep one."""
    x = images.reshape(len(images), -1).astype(jnp.float32) / 255
    return masked_totals(x @ weights, labels, mask)


def in_numpy(images: Split) -> dict[str, float]:
    """One image after the other, in double precision."""
    losses, hits, among_five = [], [], []
    for pixels, label in zip(images.images, images.labels, strict=True):
        logits = (pixels.reshape(-1) / 255) @ WEIGHTS.astype(np.float64)
        losses.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[label])
        likeliest = np.argsort(-logits)
        hits.append(likeliest[0] == label)
        among_five.append(label in likeliest[:5])
    names = ("loss", "accuracy", "top5_accuracy")
    return dict(zip(names, map(np.mean, (losses, hits, among_five)), strict=True))


@pytest.fixture(scope="module")
def evaluate():
    devices = Devices()
    evaluator = Evaluator(step, 8, devices)
    weights = devices.replicate(jnp.asarray(WEIGHTS))
    return lambda images: evaluator(weights, images)


@pytest.mark.parametrize("num", [1, 7, 8, 9, 24, 29])  # batches are of 8
def test_every_image_counts_once(evaluate, num):
    images = split(num)
    found, expected = evaluate(images), in_numpy(images)
    assert found.keys() == expected.keys()
    # Loss: sums of single precision. The others are counts, exact but for their division.
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)
    for name in ("accuracy", "top5_accuracy"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12)


def test_the_images_that_fill_a_batch_do_not_count(evaluate):
    """Padding repeats the first image: make it the worst by far."""
    images = split(9)
    images.images[0] = 255 * (WEIGHTS[:, 0] > WEIGHTS[:, 1]).reshape(4, 4, 2)
    images.labels[0] = 1
    expected = in_numpy(images)
    np.testing.assert_allclose(evaluate(images)["loss"], expected["loss"], rtol=1e-5)


def test_order_does_not_matter(evaluate):
    images = split(21)
    shuffled = images.take(RNG.permutation(21))
    found, other = evaluate(images), evaluate(shuffled)
    np.testing.assert_allclose(list(other.values()), list(found.values()), rtol=1e-6)


def test_summary_of_training_has_no_top5():
    totals = Totals(*map(jnp.float32, (6.0, 3.0, 4.0)))
    assert summary(jax.device_put(totals)) == {"loss": 1.5, "accuracy": 0.75}
