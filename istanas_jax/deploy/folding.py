"""Batch norms folded into the convolutions before them, for inference.

With running statistics a batch norm is y = factor * x + offset per channel. Where x comes from a
convolution, factor goes into its kernel and offset becomes a bias. Batch norms after a pooling or
an identity (one-stage nets) stay what they are.

It makes weights simpler, not networks faster: XLA computes factor and offset when it compiles, and
fuses the multiplication into the pass over the image that adds the offset anyway. 32 images through
20 cells of 36 channels take 0.78 s instead of 0.81 s on 2 busy CPU cores, within the noise.
"""

from collections.abc import Iterable

import flax.linen as nn
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import numpy as jnp
from jaxtyping import Array, Float

from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import EPSILON, Mode, batch_norm
from istanas_jax.networks.cells import Operation, Preprocess
from istanas_jax.networks.stem_and_heads import Stem, stem_steps
from istanas_jax.networks.target_net import TargetNet, module_layers
from istanas_jax.space.layers import CONVOLUTIONS, Shapes, Step, steps
from istanas_jax.space.operations import find_operation


def fold_batch_norms(variables: dict, net: TargetNet) -> dict:
    """Turn variables of a target net into those that `apply_folded` takes.

    A kernel keeps its name; scale, shift and statistics of its norm n give way to `bias{n}`.
    """
    params = flatten_dict(variables["params"])
    stats = flatten_dict(variables["batch_stats"])
    kept = dict(stats)
    for module, layers in module_layers(net):
        left = []
        kernels: Shapes = {}  # kernels of the layer before
        for step in steps(layers, 1):  # shapes do not matter here
            if step.norm is not None and kernels:
                moments = _moments(stats, module, step.norm)
                _fold(params, module, kernels, step.norm, np.asarray(moments, np.float64))
                kept.pop((*module, f"stats{step.norm}"), None)
            elif step.norm is not None:
                left.append(step.norm)
            kernels = step.kernels if isinstance(step.layer, CONVOLUTIONS) else {}
        if not left:
            kept.pop((*module, "stats"), None)
    return {"params": unflatten_dict(params), "batch_stats": unflatten_dict(kept)}


def _moments(stats: dict, module: tuple, n: int) -> Array:
    """Mean and variance of norm n: stem and head have a variable for each of their norms."""
    if (*module, "stats") in stats:
        return stats[*module, "stats"][n]
    return stats[*module, f"stats{n}"][0]


def _fold(params: dict, module: tuple, kernels: Shapes, n: int, moments: np.ndarray) -> None:
    """Fold norm n of a module into the kernels before it, in place."""
    scale, shift = (
        np.asarray(params.pop((*module, f"{name}{n}"), default), np.float64)
        for name, default in (("scale", 1), ("shift", 0))
    )
    mean, variance = moments
    factor = scale / np.sqrt(variance + EPSILON)
    # The two kernels of a factorised reduction make one half of the channels each.
    parts = np.split(factor, len(kernels))
    for name, part in zip(kernels, parts, strict=True):
        kernel = np.asarray(params[*module, name], np.float64) * part
        params[*module, name] = kernel.astype(np.float32)
    params[*module, f"bias{n}"] = (shift - mean * factor).astype(np.float32)


def apply_folded(
    net: TargetNet, folded: dict, x: Float[Array, "B H W Cin"]
) -> Float[Array, "B classes"]:
    """The logits of normalised images, in evaluation, from what `fold_batch_norms` gives."""

    def intercept(original, args, kwargs, context):
        # The network's own wiring runs; only what holds convolutions is replaced.
        module = context.module
        replacement = _REPLACED.get(type(module)) if context.method_name == "__call__" else None
        weights = module.variables.get("params", {})
        if replacement is None or not any(name.startswith("bias") for name in weights):
            return original(*args, **kwargs)
        return replacement(module, *args)

    with nn.intercept_methods(intercept):
        return net.apply(folded, x, train=False)[0]


def _stem(module: Stem, x: Array, mode: Mode):
    first, second = stem_steps(module.stem, module.channels, module.image_channels)
    s0 = _run(module, first, x, mode)
    return s0, _run(module, second, s0, mode)


def _preprocess(module: Preprocess, x: Array, mode: Mode) -> Array:
    layers = operations.preprocess_layers(module.channels, module.halve)
    return _run(module, steps(layers, module.channels_in), x, mode)


def _operation(module: Operation, x: Array, mode: Mode) -> Array:
    layers = find_operation(module.op).layers_in(module.stride, module.regime)
    return _run(module, steps(layers, module.channels), x, mode)


def _run(module: nn.Module, sequence: Iterable[Step], x: Array, mode: Mode) -> Array:
    """Run layers with biases in place of the batch norms that were folded."""
    weights = module.variables["params"]

    def norm(x, n):
        if f"bias{n}" in weights:
            return _add(x, weights[f"bias{n}"])
        scale, shift = operations.scale_and_shift(weights, n)
        return batch_norm(x, scale, shift, module.variables["batch_stats"]["stats"][n], mode)[0]

    return operations.run_steps(sequence, x, weights, norm)


_REPLACED = {Stem: _stem, Preprocess: _preprocess, Operation: _operation}


def _add(x: Float[Array, "B H W C"], bias: Float[Array, " C"]) -> Float[Array, "B H W C"]:
    """Add a bias in float32, as batch norms do."""
    return (x.astype(jnp.float32) + bias[None, None, None, :]).astype(x.dtype)
