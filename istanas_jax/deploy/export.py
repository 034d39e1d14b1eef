"""A trained network to take away: files that others can read, each checked as it is written."""

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
from istanas_jax.deploy import onnx_model, pytorch_source
from istanas_jax.deploy.export_texts import NAMING, NAMING_FOLDED, readme
from istanas_jax.deploy.exported import (
    CHECKSUM,
    FORMAT,
    FORMATS,
    GENOTYPE,
    MODEL,
    NETWORK,
    ONNX,
    PYTORCH,
    RELEASE,
    WEIGHTS,
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
from istanas_jax.networks.target_net import TargetNet, module_layers
from istanas_jax.runs.folder import CONFIG, Workdir
from istanas_jax.runs.trained_network import Trained, load_trained
from istanas_jax.schedules.results import named_space
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.layers import Noise
from istanas_jax.storage.files import in_bucket, remove_leftovers, telling

PLATFORMS = ("cpu", "cuda", "tpu")
IMAGES = 3  # random ones, for comparing logits


def export(
    workdir: str | os.PathLike,
    out: str | os.PathLike,
    *,
    run: int = 0,
    fold: bool = False,
    opset: int | None = None,
) -> dict:
    """Write the trained network of a run into its own folder; return a description, for JSON.

    Args:
      out: a new or empty folder, or an earlier export, which is replaced.
      run: which of the trained networks, if there are several seeds.
      fold: fold batch norms into convolutions in weights.safetensors and model.stablehlo. The
        PyTorch state keeps them, since the release's networks have them; model.onnx has them
        folded in any case.
      opset: of model.onnx, which is written where onnx and onnxruntime are installed.

    Every file is read again and its logits compared with the network's before it gets its name.
    """
    onnx_model.check_opset(opset)
    trained = load_trained(workdir, run)
    _check_function(trained.net)
    folder = _claim(out)
    variables = fold_batch_norms(trained.variables, trained.net) if fold else trained.variables
    evaluate = jax.jit(lambda variables, images: logits(trained, variables, images))
    reread = jax.jit(lambda v, x: logits(trained, v, x, folded=True)) if fold else evaluate
    shape = (IMAGES, trained.image_size, trained.image_size, trained.net.image_channels)
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    expected = np.asarray(evaluate(trained.variables, images))
    opset = (opset or onnx_model.OPSET) if onnx_model.installed() else None
    about = _about(trained, fold) | {"onnx_opset": opset, "compared_images": IMAGES}
    about |= named_space(Workdir(workdir).read(CONFIG) or {})
    if own := has_own_layers(trained.net):  # for which neither PyTorch nor ONNX has a name
        about |= {"onnx_opset": None, "left_out": [RELEASE, PYTORCH, ONNX]}
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
    if not own:
        _keep_for_others(trained, about, keep, evaluate, images, folder)
    keep("README.md", readme(trained, about).encode())
    about = signed(about | {"largest_logit": float(np.max(np.abs(expected))), "files": files})
    Workdir(folder).write(NETWORK, about)
    return {"out": str(folder), **about}


def _keep_for_others(trained: Trained, about: dict, keep, evaluate, images, folder) -> None:
    """Keep what PyTorch and ONNX read."""
    keep(
        RELEASE,
        _npz(to_release_state(trained.variables, trained.net)),
        lambda b: evaluate(load_release_state(np.load(io.BytesIO(b)), trained.net), images),
    )
    source = pytorch_source.pytorch_source(trained, about["description"], RELEASE)
    state = folder / RELEASE
    runs = pytorch_source.installed() and not in_bucket(folder)
    run_source = partial(pytorch_source.run_pytorch, state=os.fspath(state), images=images)
    keep(PYTORCH, source.encode(), run_source if runs else None)
    if opset := about["onnx_opset"]:
        content = onnx_model.onnx_model(trained, opset)
        keep(ONNX, content, partial(onnx_model.run_onnx, images=images))


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
    with _nameless_folders():
        return bytes(jax_export.export(classify, platforms=PLATFORMS)(images).serialize())


@contextmanager
def _nameless_folders() -> Iterator[None]:
    """Let programs name the files they come from, but not the folders of this machine."""
    key = "jax_hlo_source_file_canonicalization_regex"
    before = getattr(jax.config, key)
    jax.config.update(key, ".*/")
    try:
        yield
    finally:
        jax.config.update(key, before)


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
    for name in (MODEL, WEIGHTS, RELEASE, PYTORCH, ONNX, GENOTYPE, "README.md"):
        (folder / name).unlink(missing_ok=True)
        (folder / f".{name}.tmp").unlink(missing_ok=True)
    return folder.path


def _network(folder: Workdir) -> Any:
    try:
        return folder.read(NETWORK)
    except ValueError:  # somebody else's file
        return None


def _check_function(net: TargetNet) -> None:
    """Raise if the network does not give the same answer to the same image."""
    for _, layers in module_layers(net):
        if any(isinstance(layer, Noise) for layer in layers):
            raise ExportError(
                "the network's cells have noise, which is no function of an image: it cannot be "
                "exported"
            )


def has_own_layers(net: TargetNet) -> bool:
    """Whether an operation of the network computes a layer by a function of somebody's own."""
    return any(hasattr(layer, "apply") for _, layers in module_layers(net) for layer in layers)


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
