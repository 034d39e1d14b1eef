"""Encoded images to crops of one size, for training and for evaluation.

Measured per image on one core of an AMD EPYC (time of the processor, the machine in use): JPEGs of
500 x 375 pixels and 118 kB, crops of 224 pixels; `python -m istanas_jax bench data` has the sums.

- decoding: simplejpeg 1.17 ms, cv2 1.23, Pillow 1.82, pyvips 2.7; all but pyvips to the same pixels
- height and width from the header: simplejpeg 0.004 ms, Pillow 0.035
- decoding to a smaller size: by 1/2 1.06 ms, by 6/8 1.54, so only halves are worth it
- resizing a crop of 320 pixels: `resize` 0.30 ms, cv2's INTER_AREA 0.71, Pillow's bilinear 0.88
"""

import math
from typing import NamedTuple

import cv2
import numpy as np
import simplejpeg

from istanas_jax.data.errors import DataError

SCALE = (0.08, 1.0)  # of a crop's area to the image's, as torchvision's RandomResizedCrop
RATIO = (3 / 4, 4 / 3)  # of its width to its height
TRIES = 10
REDUCTIONS = (8, 4, 2)  # by which libjpeg shrinks an image while it decodes it


class Box(NamedTuple):
    top: int
    left: int
    height: int
    width: int


def random_crop(
    encoded: bytes, size: int, channels: int, what: object, rng: np.random.Generator
) -> np.ndarray:
    """Crop a random part of an image to (size, size, channels); `what` names it in errors."""
    return resize(decode_crop(encoded, size, channels, what, rng), size, size)


def decode_crop(
    encoded: bytes, size: int, channels: int, what: object, rng: np.random.Generator
) -> np.ndarray:
    """The random part before it is resized, decoded not much larger than it must be."""
    shape = _shape(encoded)
    if shape is None:
        image = decode(encoded, 0, channels, what, upright=False)
        box = random_box(*image.shape[:2], rng)
    else:
        box = random_box(*shape, rng)
        image, by = _decode(encoded, channels, what, shape, min(box.height, box.width) / size)
        box = Box(*(round(side / by) for side in box))
    top, left, height, width = box
    return image[top : top + height, left : left + width]


def centre_crop(encoded: bytes, size: int, channels: int, what: object, shorter: int) -> np.ndarray:
    """The middle of an image whose shorter side is made `shorter`, as (size, size, channels)."""
    shape = _shape(encoded)
    if shape is None:
        image = decode(encoded, 0, channels, what, upright=False)
        shape = image.shape[:2]
    else:
        image, _ = _decode(encoded, channels, what, shape, min(shape) / shorter)
    height, width = (shorter * side // min(shape) for side in shape)
    top, left = (round((side - size) / 2) for side in (height, width))
    return resize(image, height, width)[top : top + size, left : left + size]


def random_box(height: int, width: int, rng: np.random.Generator) -> Box:
    """Draw a box as torchvision's RandomResizedCrop: area and log of the ratio are uniform."""
    for _ in range(TRIES):
        area, ratio, top, left = rng.random(4)
        area = height * width * (SCALE[0] + (SCALE[1] - SCALE[0]) * area)
        ratio = RATIO[0] * (RATIO[1] / RATIO[0]) ** ratio
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return Box(int(top * (height - h + 1)), int(left * (width - w + 1)), h, w)
    h = min(height, round(width / RATIO[0]))
    w = min(width, round(height * RATIO[1]))
    return Box((height - h) // 2, (width - w) // 2, h, w)


def _shape(encoded: bytes) -> tuple[int, int] | None:
    """Height and width from the header of a sound JPEG; None for anything else."""
    try:
        return simplejpeg.decode_jpeg_header(encoded)[:2]
    except ValueError:
        return None


def _decode(
    encoded: bytes, channels: int, what: object, shape: tuple[int, int], too_large: float
) -> tuple[np.ndarray, int]:
    """Decode a JPEG, shrunk by as much of `too_large` as libjpeg can; returns that factor too."""
    by = next((by for by in REDUCTIONS if by <= too_large), 1)
    try:
        image = simplejpeg.decode_jpeg(
            encoded,
            colorspace="GRAY" if channels == 1 else "RGB",
            min_height=-(-shape[0] // by),
            min_width=-(-shape[1] // by),
        )
        return image, by
    except ValueError:  # cv2 reads some that are damaged
        return decode(encoded, 0, channels, what, upright=False), 1


def decode(
    encoded: bytes, size: int, channels: int, what: object, *, upright: bool = True
) -> np.ndarray:
    """Decode to (size, size, channels); size 0 keeps the image's, channels 0 its colours.

    upright: turned as a camera's EXIF note says.
    """
    flags = {0: cv2.IMREAD_UNCHANGED, 1: cv2.IMREAD_GRAYSCALE, 3: cv2.IMREAD_COLOR_RGB}[channels]
    if not upright:
        flags |= cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(encoded, np.uint8), flags)
    except cv2.error:  # an empty file
        image = None
    if image is None:
        raise DataError(f"{what} cannot be read as an image; repair or remove it")
    if size and image.shape[:2] != (size, size):
        image = cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA)
    if image.ndim == 2:
        image = image[..., None]
    return image if channels or image.shape[2] == 1 else image[..., :3]


def resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize as Pillow's antialiased bilinear filter does, to about 1 in 255.

    Pillow weights pixels by a triangle that is s times as wide as cv2's bilinear when it shrinks by
    s. The variance of a triangle is s^2 / 6, that of the filter (a, 1 - 2a, a) is 2a; so this
    filter before cv2's bilinear makes it as wide. For s = 1 and s = 2 the weights are Pillow's.
    """
    shrink = (image.shape[1] / width, image.shape[0] / height)
    if max(shrink) > 2:
        resized = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    else:
        if max(shrink) > 1:
            filters = [
                np.array([a, 1 - 2 * a, a]) for a in (max(s * s - 1, 0) / 12 for s in shrink)
            ]
            image = cv2.sepFilter2D(image, -1, *filters, borderType=cv2.BORDER_REPLICATE)
        resized = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
    return resized.reshape(height, width, -1)  # cv2 leaves out an axis of one channel
