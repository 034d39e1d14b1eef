"""Classify image files with a trained network, from a run's folder or an export."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from etils import epath

from istanas_jax.data.errors import DataError
from istanas_jax.data.preparation import Preparation
from istanas_jax.data.sources.folder import SUFFIXES, read_image
from istanas_jax.deploy.export import logits
from istanas_jax.deploy.exported import MODEL, NETWORK, ExportError, open_export
from istanas_jax.runs.trained_network import load_trained
from istanas_jax.storage.files import as_path

BATCH = 64  # images at a time


class Prediction(NamedTuple):
    """The most probable classes of an image file, best first."""

    path: str
    class_names: tuple[str, ...]
    probabilities: tuple[float, ...]


class _Network(NamedTuple):
    logits: Callable  # uint8 (B, H, W, C) -> (B, classes)
    preparation: Preparation
    class_names: tuple[str, ...]


def predict(
    source: str | os.PathLike, paths: Iterable[str | os.PathLike], *, top: int = 3
) -> Iterator[Prediction]:
    """Yield a prediction for each image, in the order of the paths.

    Args:
      source: the folder of a finished run, of an export, or an export's model.stablehlo; only that
        file and network.json of an export are read.
      paths: image files, or folders, whose images are taken, those in folders inside too.
      top: how many classes to name, at least 1; all of them if there are fewer.

    Images are prepared as the test images were. A DataError names an image that cannot be read.
    """
    if top < 1:
        raise DataError(f"top is {top}: name at least 1 class")
    files = _image_files(paths)  # first: it takes no time, and is what people mistype
    network = _load(source)
    if network.preparation.channels not in (1, 3):
        raise DataError(
            f"{source} takes images of {network.preparation.channels} channels; image files have "
            "1 or 3"
        )
    batch = max(1, min(BATCH, len(files)))
    for start in range(0, len(files), batch):
        some = files[start : start + batch]
        images = _read(some, batch, network.preparation)
        scores = np.asarray(network.logits(images), np.float64)[: len(some)]
        shares = np.exp(scores - scores.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        for path, share in zip(some, shares, strict=True):
            best = np.argsort(-share, kind="stable")[:top]
            names = tuple(network.class_names[n] for n in best)
            yield Prediction(str(path), names, tuple(share[best].tolist()))


def lines(predictions: Iterable[Prediction], *, as_json: bool = False) -> Iterator[str]:
    """Format a line per image, for people or as JSON."""
    for path, names, probabilities in predictions:
        pairs = list(zip(names, probabilities, strict=True))
        if as_json:
            classes = [{"class": name, "probability": p} for name, p in pairs]
            yield json.dumps({"path": path, "classes": classes})
        else:
            yield f"{path}  " + ", ".join(f"{name} {100 * p:.1f} %" for name, p in pairs)


def _load(source: str | os.PathLike) -> _Network:
    path = as_path(source)
    if path.is_file():
        if path.name != MODEL or not (path.parent / NETWORK).exists():
            raise ExportError(f"{path} is not an export's {MODEL} beside its {NETWORK}")
        return _load_export(path.parent)
    if (path / NETWORK).exists():
        return _load_export(path)
    trained = load_trained(source)
    evaluate = jax.jit(lambda variables, images: logits(trained, variables, images))
    return _Network(
        lambda images: evaluate(trained.variables, images),
        trained.preparation,
        trained.class_names,
    )


def _load_export(folder: epath.Path) -> _Network:
    export = open_export(folder)
    return _Network(jax.jit(export.model().call), export.preparation, export.class_names)


def _image_files(paths: Iterable[str | os.PathLike]) -> list[Path]:
    """The files named, and for folders the images in them except hidden ones."""
    files = []
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"{path} does not exist")
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES)
            inside = [p for p in inside if p.is_file() and not _hidden(p.relative_to(path))]
            if not inside:
                raise DataError(f"{path} has no images: {', '.join(sorted(SUFFIXES))} are read")
            files += inside
        else:
            files.append(path)
    return files


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _read(files: list[Path], batch: int, prepare: Preparation) -> np.ndarray:
    """Read images and fill the batch with black ones: another number would compile again."""
    images = np.zeros((batch, *prepare.shape), np.uint8)

    def read(n: int) -> None:
        images[n] = prepare(read_image(files[n]), files[n])

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(read, range(len(files))):
            pass
    return images
