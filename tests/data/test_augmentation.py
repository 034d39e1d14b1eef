"""Augmentation against a loop in numpy that uses the same draws, and its statistics."""

import colorsys

import jax
import numpy as np
import pytest

from istanas_jax.data.augmentation import DRAWS, JITTER_DRAWS, augment, draw, normalise

MEAN = np.array([0.5, 0.25, 0.75], np.float32)
STD = np.array([0.25, 0.5, 0.125], np.float32)
KEY = jax.random.key(3)


def random_images(batch, size=8, channels=3):
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (batch, size, size, channels), dtype=np.uint8)


def by_loop(key, images, pad, flip, cutout):
    """What `augment` promises, one image at a time."""
    draws = np.asarray(draw(key, len(images)))
    height, width = images.shape[1:3]
    out = np.zeros(images.shape, np.float32)
    for image, drawn, result in zip(images, draws, out, strict=True):
        padded = np.zeros((height + 2 * pad, width + 2 * pad, image.shape[2]), np.uint8)
        padded[pad : pad + height, pad : pad + width] = image
        top, left = int(drawn[0] * (2 * pad + 1)), int(drawn[1] * (2 * pad + 1))
        crop = padded[top : top + height, left : left + width]
        if flip and drawn[2] < 0.5:
            crop = crop[:, ::-1]
        result[:] = (crop.astype(np.float32) / 255 - MEAN) / STD
        if cutout:
            y, x = int(drawn[3] * height), int(drawn[4] * width)
            first_row, first_column = max(y - cutout // 2, 0), max(x - cutout // 2, 0)
            last_row, last_column = y - cutout // 2 + cutout, x - cutout // 2 + cutout
            result[first_row:last_row, first_column:last_column] = 0
    return out


def run(key, images, pad=0, flip=False, cutout=0, mean=MEAN, std=STD):
    step = jax.jit(augment, static_argnames=("pad", "flip", "cutout"))
    draws = draw(key, len(images))
    return np.asarray(step(draws, images, mean=mean, std=std, pad=pad, flip=flip, cutout=cutout))


@pytest.mark.parametrize(
    ("pad", "flip", "cutout"),
    [(2, True, 3), (2, True, 4), (2, False, 0), (0, True, 0), (0, False, 4), (0, False, 0)],
)
def test_equals_a_loop(pad, flip, cutout):
    images = random_images(16)
    found = run(KEY, images, pad, flip, cutout)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_loop(KEY, images, pad, flip, cutout), rtol=1e-5, atol=1e-6)


def test_not_square_and_one_channel():
    images = random_images(9)[:, :5, :, :1]
    step = jax.jit(augment, static_argnames=("pad", "flip", "cutout"))
    one = np.ones(1, np.float32)
    found = step(draw(KEY, 9), images, mean=0 * one, std=one, pad=1, flip=True, cutout=0)
    assert found.shape == images.shape


def test_normalise():
    images = random_images(2)
    expected = (images / 255.0 - MEAN) / STD
    np.testing.assert_allclose(normalise(images, MEAN, STD), expected, rtol=1e-5, atol=1e-6)


def test_a_key_decides_all():
    images = random_images(8)
    once, again = (run(KEY, images, 2, True, 3) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert (run(jax.random.key(4), images, 2, True, 3) != once).any()


def test_crops_take_every_offset_equally_often():
    """One bright pixel shows where the crop lay."""
    batch, pad, size = 6000, 1, 5
    images = np.zeros((batch, size, size, 1), np.uint8)
    images[:, 2, 2] = 255
    found = run(KEY, images, pad, mean=np.zeros(1, np.float32), std=np.ones(1, np.float32))
    assert (found.sum((1, 2, 3)) == 1).all()
    counts = found.sum((0, 3))
    outside = np.ones((size, size), bool)
    outside[1:4, 1:4] = False
    assert (counts[outside] == 0).all()
    expected = batch / 9
    assert (np.abs(counts[1:4, 1:4] - expected) < 5 * expected**0.5).all()


def test_half_of_the_images_are_flipped():
    images = np.zeros((4000, 4, 4, 1), np.uint8)
    images[:, :, 0] = 255
    found = run(KEY, images, flip=True, mean=np.zeros(1, np.float32), std=np.ones(1, np.float32))
    flipped = found[:, 0, 3, 0] == 1
    assert (found[flipped, :, 3] == 1).all()
    assert (found[~flipped, :, 0] == 1).all()
    assert abs(flipped.mean() - 0.5) < 0.04


def test_padding_is_black_before_and_cutout_zero_after_normalisation():
    images = np.full((64, 6, 6, 3), 255, np.uint8)
    white, black = (1 - MEAN) / STD, -MEAN / STD
    padded = run(KEY, images, pad=3)
    is_white = np.isclose(padded, white).all(-1)
    assert np.isclose(padded[~is_white], black).all()
    assert 0 < is_white.mean() < 1
    cut = run(KEY, images, cutout=2)
    assert (cut[~np.isclose(cut, white).all(-1)] == 0).all()


@pytest.mark.parametrize(
    ("centre", "side", "count"),
    [((4, 4), 4, 16), ((4, 4), 3, 9), ((0, 0), 4, 4), ((7, 7), 4, 9), ((0, 7), 3, 4)],
)
def test_cutout_covers_exactly_the_square_inside_the_image(centre, side, count):
    draws = np.zeros((1, DRAWS), np.float32)
    draws[0, 3:] = (np.array(centre) + 0.5) / 8
    images = np.full((1, 8, 8, 3), 255, np.uint8)
    found = augment(draws, images, mean=MEAN, std=STD, pad=0, flip=False, cutout=side)
    assert (np.asarray(found) == 0).all(-1).sum() == count


def test_parts_switched_off_use_no_draws():
    jaxpr = jax.make_jaxpr(
        lambda draws, images: augment(
            draws, images, mean=MEAN, std=STD, pad=0, flip=False, cutout=0
        )
    )(np.zeros((2, DRAWS), np.float32), random_images(2)).jaxpr
    assert not any(jaxpr.invars[0] in equation.invars for equation in jaxpr.eqns)


def jitter_by_loop(image, drawn, strength):
    """torchvision's adjust_brightness, _contrast, _saturation and _hue, a pixel at a time."""
    grey = lambda pixel: 0.2989 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]  # noqa: E731
    factors = [1 + s * (2 * u - 1) for s, u in zip(strength, drawn, strict=True)]
    pixels = [np.clip(factors[0] * pixel, 0, 1) for pixel in image.reshape(-1, 3) / 255]
    mean = np.mean([grey(pixel) for pixel in pixels])
    pixels = [np.clip(factors[1] * pixel + (1 - factors[1]) * mean, 0, 1) for pixel in pixels]
    pixels = [
        np.clip(factors[2] * pixel + (1 - factors[2]) * grey(pixel), 0, 1) for pixel in pixels
    ]
    for i, pixel in enumerate(pixels):
        hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
        pixels[i] = colorsys.hsv_to_rgb((hue + factors[3] - 1) % 1, saturation, value)
    return np.reshape(pixels, image.shape)


def run_jitter(draws, images, strength, flip=False, cutout=0, mean=None, std=None):
    step = jax.jit(augment, static_argnames=("pad", "flip", "cutout", "color_jitter"))
    one = np.ones(images.shape[3], np.float32)
    given = {"mean": 0 * one if mean is None else mean, "std": one if std is None else std}
    how = {"pad": 0, "flip": flip, "cutout": cutout, "color_jitter": strength}
    return np.asarray(step(draws, images, **given, **how))


@pytest.mark.parametrize("strength", [(0.4, 0.4, 0.4, 0.2), (1, 1, 1, 0.5), (0, 0, 0, 0.5)])
def test_jitter_equals_a_loop(strength):
    images = random_images(12)
    images[0] = images[0, :, :, :1]  # grey
    images[1] = 0
    draws = draw(KEY, 12, jitter=True)
    found = run_jitter(draws, images, strength)
    expected = [
        jitter_by_loop(image, drawn[DRAWS:], strength)
        for image, drawn in zip(images, np.asarray(draws), strict=True)
    ]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_jitter_of_nothing_is_the_identity():
    images = random_images(4)
    draws = draw(KEY, 4, jitter=True)
    plain = run(KEY, images, mean=np.zeros(3, np.float32), std=np.ones(3, np.float32))
    for strength in ((), (0, 0, 0, 0)):
        np.testing.assert_array_equal(run_jitter(draws, images, strength), plain)
    middle = np.full((4, DRAWS + JITTER_DRAWS), 0.5, np.float32)
    found = run_jitter(middle, images, (0.4, 0.4, 0.4, 0.2))
    np.testing.assert_allclose(found, images / 255, atol=1e-6)


def test_one_channel_has_brightness_and_contrast_only():
    images = random_images(4, channels=1)
    draws = draw(KEY, 4, jitter=True)
    found = run_jitter(draws, images, (0.4, 0.4, 0.4, 0.2))
    assert (found != images / 255).any()
    np.testing.assert_array_equal(found, run_jitter(draws, images, (0.4, 0.4, 0, 0)))


def test_jitter_comes_after_the_flip_and_before_normalisation():
    images = random_images(16)
    draws = draw(KEY, 16, jitter=True)
    strength = (0.4, 0.4, 0.4, 0.2)
    found = run_jitter(draws, images, strength, flip=True, cutout=2, mean=MEAN, std=STD)
    flipped = np.where(np.asarray(draws)[:, 2, None, None, None] < 0.5, images[:, :, ::-1], images)
    expected = (run_jitter(draws, flipped, strength) - MEAN) / STD
    kept = found != 0
    np.testing.assert_allclose(found[kept], expected[kept], atol=1e-5)
    assert (~kept).sum() <= 16 * 4 * 3


def test_draws_without_jitter_are_those_of_before():
    """Runs without jitter must give what they always gave."""
    np.testing.assert_array_equal(draw(KEY, 6), jax.random.uniform(KEY, (6, 5)))
    assert draw(KEY, 6, jitter=True).shape == (6, 9)
