"""Crops of encoded images."""

import numpy as np
from pictures import PHOTOS, difference
from PIL import Image

from istanas_jax.data import decoding


def test_boxes_are_those_of_torchvision():
    rng = np.random.default_rng(0)
    boxes = np.array([decoding.random_box(300, 400, rng) for _ in range(4000)])
    top, left, height, width = boxes.T
    assert (boxes >= 0).all()
    assert (top + height <= 300).all()
    assert (left + width <= 400).all()
    area, ratio = height * width / (300 * 400), width / height
    assert (area > 0.079).all()
    assert ((ratio > 0.74) & (ratio < 1.35)).all()
    small = area < 0.4  # these always fit: uniform in area and in the logarithm of the ratio
    assert abs(area[small].mean() - 0.24) < 0.01
    assert abs(np.log(ratio[small]).mean()) < 0.01
    free = (300 - height)[small]
    assert abs((top[small] / np.maximum(free, 1)).mean() - 0.5) < 0.02
    # Nothing fits into a strip: its middle, as near to the ratios as can be.
    assert decoding.random_box(3000, 30, rng) == (1480, 0, 40, 30)
    assert decoding.random_box(30, 3000, rng) == (0, 1480, 30, 40)
    assert decoding.random_box(1, 1, rng) == (0, 0, 1, 1)


def test_resize_is_pillows_where_it_can_be():
    image = np.asarray(PHOTOS[1])[100:228, 200:328]
    for size in (64, 128, 300):  # half, same, more
        expected = Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR)
        found, expected = (
            np.asarray(picture)[1:-1, 1:-1]  # the edges differ a little
            for picture in (decoding.resize(image, size, size), expected)
        )
        np.testing.assert_allclose(found, expected, atol=2)
    strong = decoding.resize(image, 20, 30)
    assert difference(strong, Image.fromarray(image), None, (30, 20)) < 4
