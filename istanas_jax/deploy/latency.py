"""How long each program of an export takes on this machine, from pixels to logits."""

import os
import statistics
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np
from etils import epath

from istanas_jax.deploy import onnx_model, pytorch_source
from istanas_jax.deploy.exported import MODEL, ONNX, PYTORCH, RELEASE, Exported, open_export
from istanas_jax.storage.files import in_bucket

BATCHES = (1, 32)
CALLS = 5  # at least so many are timed
SECONDS = 0.5  # and more within this time
Classify = Callable[[np.ndarray], object]


def measure(folder: str | os.PathLike) -> dict:
    """Time the programs in the folder of an export; return milliseconds, for JSON."""
    export = open_export(epath.Path(folder))
    rng = np.random.default_rng(0)
    rows = []
    for name, runtime, classify in _programs(export):
        for batch in BATCHES:
            images = rng.integers(0, 256, (batch, *export.preparation.shape), np.uint8)
            seconds = _times(classify, images)
            row = {"file": name, "runtime": runtime, "batch": batch, "calls": len(seconds)}
            row["milliseconds"] = 1000 * statistics.median(seconds)
            rows.append(row | {"fastest": 1000 * min(seconds)})
    return {"device": str(jax.devices()[0].device_kind), "cores": os.cpu_count(), "rows": rows}


def _programs(export: Exported) -> Iterator[tuple[str, str, Classify]]:
    """Each program that can run here: file, what runs it, the function from images to logits."""
    call = jax.jit(export.model().call)
    yield MODEL, f"jax {jax.__version__}", lambda images: jax.block_until_ready(call(images))
    if ONNX in export.checksums and onnx_model.installed():
        import onnxruntime

        session = onnx_model.session(export.read(ONNX))
        runtime = f"onnxruntime {onnxruntime.__version__}"
        yield ONNX, runtime, lambda images: session.run(None, {"images": images})
    if PYTORCH in export.checksums and pytorch_source.installed() and not in_bucket(export.folder):
        import torch

        export.read(RELEASE)  # checked
        state = os.fspath(export.folder / RELEASE)
        classify = pytorch_source.classifier(export.read(PYTORCH), state)
        yield PYTORCH, f"torch {torch.__version__}", classify


def _times(classify: Classify, images: np.ndarray) -> list[float]:
    """Seconds of calls after a first one, which compiles."""
    classify(images)
    seconds: list[float] = []
    while len(seconds) < CALLS or sum(seconds) < SECONDS:
        begin = time.perf_counter()
        classify(images)
        seconds.append(time.perf_counter() - begin)
    return seconds


def table(results: dict) -> str:
    """Format what `measure` found as text for people."""
    lines = [f"{'file':<18}{'runtime':<24}{'images':>6}  {'median':>10}  {'fastest':>10}"]
    for row in results["rows"]:
        median, fastest = (f"{row[key]:.2f} ms" for key in ("milliseconds", "fastest"))
        lines.append(
            f"{row['file']:<18}{row['runtime']:<24}{row['batch']:>6}  {median:>10}  {fastest:>10}"
        )
    return "\n".join([f"on {results['device']}, {results['cores']} cores", *lines])
