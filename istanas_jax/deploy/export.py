"""A trained network to take away: files that others can read, each checked as it is written."""

import io
import json
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from etils import epath
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import export as jax_export
from jax import numpy as jnp
from jaxtyping import Array, Float, UInt8

from istanas_jax import __version__
from istanas_jax.data.augmentation import normalise
from istanas_jax.deploy.exported import (
    CHECKSUM,
    FORMAT,
    FORMATS,
    MODEL,
    NETWORK,
    ExportError,
    check_flatbuffers,
    checksum,
    load_model,
    signed,
)
from istanas_jax.deploy.folding import apply_folded, fold_batch_norms
from istanas_jax.deploy.release_state import load_release_state, to_release_state
from istanas_jax.networks import counting
from istanas_jax.networks.agreement import PRECISION, compare
from istanas_jax.runs.folder import Workdir
from istanas_jax.runs.trained_network import Trained, load_trained
from istanas_jax.space.genotype import Genotype
from istanas_jax.storage.files import remove_leftovers, telling

WEIGHTS, RELEASE, GENOTYPE = "weights.safetensors", "pytorch_state.npz", "genotype.json"
PLATFORMS = ("cpu", "cuda", "tpu")
IMAGES = 3  # random ones, for comparing logits

NAMING = {
    "params/stem/...": "from the image to the inputs of the first cell",
    "params/cell_CC/preI/...": "what brings input I of cell CC to the cell's channels",
    "params/cell_CC/nodeJ_connectionK/...": "operation K of node J, in the genotype's order; one "
    "without weights has no entry",
    "params/classifier/linear/kernel, bias": "(in, classes) and (classes,)",
    ".../convN": "convolution kernel (h, w, in, out)",
    ".../depthwiseN": "depthwise kernel (h, w, C), before pointwiseN",
    ".../pointwiseN": "1x1 kernel (in, out)",
    ".../even, odd": "the 1x1 kernels (in, out / 2) of a factorised reduction",
    ".../scaleN, shiftN": "of batch norm N, (C,); without them 1 and 0",
    "batch_stats/.../stats": "running mean and variance of the module's batch norms, "
    "(norms, 2, C): y = scale * (x - mean) / sqrt(variance + 1e-5) + shift",
    "batch_stats/stem/statsN": "the same for the stem's batch norm N, (1, 2, C)",
}
NAMING_FOLDED = {
    ".../biasN": "(C,): batch norm N is folded into the kernel before it and this bias, and has "
    "no other entry",
}

README = """\
# {title}

Written by istanas_jax {version} with jax {jax}. Sizes, class names and normalisation are in
`network.json`, the cells in `genotype.json`.

## `model.stablehlo`: everything inside, runs with jax and flatbuffers alone

    import pathlib, jax.export
    model = jax.export.deserialize(bytearray(pathlib.Path("model.stablehlo").read_bytes()))
    logits = model.call(images)

images: uint8 (B, {size}, {size}, {channels}) for any B, pixels of 0 ... 255, normalised inside;
logits: float32 (B, {classes}). On cpu, cuda and tpu. The file is a program: loading and calling it
runs what it holds, so use it only if you trust where it comes from.

The network was tested on images prepared like this: {preparation}.
`python -m istanas_jax predict` does so. `network.json` has the sha256 of every file.

## `weights.safetensors`: the arrays by name

    weights = safetensors.numpy.load_file("weights.safetensors")

`network.json` explains the names under `naming`.{folded}

## `pytorch_state.npz`: the state dict of the authors' PyTorch release

    state = {{k: torch.from_numpy(v) for k, v in numpy.load("pytorch_state.npz").items()}}
    model.load_state_dict(state)  # the release's model of this genotype, without an auxiliary head
    model.eval()

Images are (B, C, H, W) there, normalised as `network.json` says.
"""


def export(
    workdir: str | os.PathLike, out: str | os.PathLike, *, run: int = 0, fold: bool = False
) -> dict:
    """Write the trained network of a run into its own folder; return a description, for JSON.

    Args:
      out: a new or empty folder, or an earlier export, which is replaced.
      run: which of the trained networks, if there are several seeds.
      fold: fold batch norms into convolutions in weights.safetensors and model.stablehlo. The
        PyTorch state keeps them, since the release's networks have them.

    Every file is read again and its logits compared with the network's before it gets its name.
    """
    trained = load_trained(workdir, run)
    folder = _claim(out)
    variables = fold_batch_norms(trained.variables, trained.net) if fold else trained.variables
    evaluate = jax.jit(lambda variables, images: logits(trained, variables, images))
    reread = jax.jit(lambda v, x: logits(trained, v, x, folded=True)) if fold else evaluate
    shape = (IMAGES, trained.image_size, trained.image_size, trained.net.image_channels)
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    expected = np.asarray(evaluate(trained.variables, images))
    about = _about(trained, fold)
    files = {}

    def keep(name: str, content: bytes, again: Callable[[bytes], Array] | None = None) -> None:
        temporary = folder / f".{name}.tmp"
        with telling(folder / name):
            temporary.write_bytes(content)
        files[name] = {"bytes": len(content), CHECKSUM: checksum(content)}
        if again:
            found = compare(again(temporary.read_bytes()), expected, trained.net.dtype)
            if not found.holds:
                raise ExportError(
                    f"{temporary}, read again, gives logits that differ from the network's {found}"
                )
            files[name]["largest_difference"] = found.difference
        temporary.replace(folder / name)

    genotype = trained.net.genotype.to_json()
    if Genotype.from_json(genotype) != trained.net.genotype:
        raise ExportError(f"the genotype changes when it is written: {genotype}")
    keep(GENOTYPE, f"{genotype}\n".encode())
    keep(WEIGHTS, _safetensors(variables, about), lambda b: reread(_from_safetensors(b), images))
    keep(MODEL, stablehlo(trained, variables, fold), lambda b: load_model(b).call(images))
    keep(
        RELEASE,
        _npz(to_release_state(trained.variables, trained.net)),
        lambda b: evaluate(load_release_state(np.load(io.BytesIO(b)), trained.net), images),
    )
    keep("README.md", _readme(trained, about).encode())
    about = signed(about | {"largest_logit": float(np.max(np.abs(expected))), "files": files})
    Workdir(folder).write(NETWORK, about)
    return {"out": str(folder), **about}


def logits(
    trained: Trained, variables: dict, images: UInt8[Array, "B H W C"], *, folded: bool = False
) -> Float[Array, "B classes"]:
    """The logits of pixels of 0 ... 255; `variables` are the network's, or folded ones."""
    # In full precision, so that every platform computes the same from the same file.
    with jax.default_matmul_precision(PRECISION):
        x = normalise(images, trained.mean, trained.std)
        if folded:
            return apply_folded(trained.net, variables, x)
        return trained.net.apply(variables, x, train=False)[0]


def stablehlo(trained: Trained, variables: dict, folded: bool = False) -> bytes:
    """The network as a jax.export artifact: any number of images, all platforms, weights inside."""
    check_flatbuffers()
    (batch,) = jax_export.symbolic_shape("batch")
    size = trained.image_size
    images = jax.ShapeDtypeStruct((batch, size, size, trained.net.image_channels), jnp.uint8)
    classify = jax.jit(lambda images: logits(trained, variables, images, folded=folded))
    return bytes(jax_export.export(classify, platforms=PLATFORMS)(images).serialize())


def table(results: dict) -> str:
    """Format what `export` wrote as text for people."""
    rows = []
    for name, file in results["files"].items():
        difference = file.get("largest_difference")
        said = (
            "" if difference is None else f"  reads back, logits differ by at most {difference:.1e}"
        )
        rows.append(f"{name:<22}{file['bytes']:>12,} bytes{said}")
    return "\n".join(
        [
            f"{results['description']}, in {results['out']}",
            "",
            *rows,
            "",
            f"compared on {IMAGES} random images, largest logit {results['largest_logit']:.3g}",
            f"{MODEL} is a program: whoever loads it must trust where it comes from",
        ]
    )


def _claim(out: str | os.PathLike) -> epath.Path:
    """Make the folder empty but for a stub that says whose it is."""
    folder = Workdir(out)
    if folder.path.exists() and not folder.path.is_dir():
        raise ExportError(f"{out} is a file, not a folder")
    folder.path.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder.path, NETWORK)
    about = _network(folder)
    ours = isinstance(about, dict) and str(about.get("format")).startswith(FORMATS)
    if any(folder.path.iterdir()) and not ours:
        raise ExportError(f"{out} holds other files and no export: choose an empty or new folder")
    folder.write(NETWORK, {"format": FORMAT})  # first: an export that breaks off can be repeated
    for name in (MODEL, WEIGHTS, RELEASE, GENOTYPE, "README.md"):
        (folder / name).unlink(missing_ok=True)
        (folder / f".{name}.tmp").unlink(missing_ok=True)
    return folder.path


def _network(folder: Workdir) -> Any:
    try:
        return folder.read(NETWORK)
    except ValueError:  # somebody else's file
        return None


def _about(trained: Trained, folded: bool) -> dict:
    net, size = trained.net, trained.image_size
    counts = counting.count(net, size)
    title = (
        f"ISTA-NAS network of {net.cells} cells and {net.channels} channels for {net.classes} "
        f"classes of {size} x {size} x {net.image_channels} images"
    )
    return {
        "format": FORMAT,
        "description": title + (", batch norms folded" if folded else ""),
        "version": __version__,
        "jax": jax.__version__,
        "genotype": net.genotype.to_text(),
        "net": {
            name: getattr(net, name)
            for name in ("stem", "cells", "channels", "classes", "regime", "dtype")
        },
        "image_size": size,
        "image_channels": net.image_channels,
        "preparation": trained.preparation.to_dict(),
        "preparation_in_words": trained.preparation.in_words(),
        "normalisation": "(pixels / 255 - mean) / std",
        "mean": trained.mean,
        "std": trained.std,
        "class_names": trained.class_names,
        "parameters": counts.parameters,
        "multiply_adds": counts.multiply_adds,
        "flops": counts.flops,
        "folded": folded,
        "naming": NAMING | (NAMING_FOLDED if folded else {}),
    }


def _safetensors(variables: dict, about: dict) -> bytes:
    arrays = {
        name: np.ascontiguousarray(array)
        for name, array in flatten_dict(variables, sep="/").items()
    }
    told = ("format", "description", "genotype", "preparation_in_words", "normalisation")
    texts = {key: about[key] for key in (*told, "mean", "std", "class_names")}
    metadata = {k: v if isinstance(v, str) else json.dumps(v) for k, v in texts.items()}
    return safetensors.numpy.save(arrays, metadata)


def _from_safetensors(content: bytes) -> dict:
    return unflatten_dict(safetensors.numpy.load(content), sep="/")


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _readme(trained: Trained, about: dict) -> str:
    folded = (
        "\nBatch norms are folded into the convolutions before them." if about["folded"] else ""
    )
    return README.format(
        title=about["description"],
        version=about["version"],
        jax=about["jax"],
        size=trained.image_size,
        channels=trained.net.image_channels,
        classes=trained.net.classes,
        folded=folded,
        preparation=about["preparation_in_words"],
    )
