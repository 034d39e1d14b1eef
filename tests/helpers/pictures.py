"""Photographs for tests of what reads, decodes and crops images."""

import io

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

PHOTOS = [Image.fromarray(photo) for photo in load_sample_images().images]
SIZES = [(150, 200), (200, 150), (90, 250), (64, 64), (427, 640), (40, 50), (1000, 1500)]
SIZE = 64  # of crops


def encode(image: Image.Image, form="JPEG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **({"quality": 92} if form == "JPEG" else {}), **options)
    return file.getvalue()


def photo(i: int) -> Image.Image:
    height, width = SIZES[i % len(SIZES)]
    return PHOTOS[i % 2].resize((width, height), Image.Resampling.LANCZOS)


def write_folder(root) -> None:
    """Two classes of seven images."""
    for i in range(14):
        (root / "train" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        (root / "train" / "ab"[i % 2] / f"{i:02}.jpg").write_bytes(encode(photo(i)))


def difference(found, image, box, size=(SIZE, SIZE)) -> float:
    """Mean over all pixels, in 1 / 255, to Pillow's antialiased bilinear."""
    expected = image.resize(size, Image.Resampling.BILINEAR, box=box)
    return float(np.abs(found.astype(int) - np.asarray(expected)).mean())
