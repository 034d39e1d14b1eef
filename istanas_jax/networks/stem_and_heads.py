"""What stands before and behind the cells: stem, auxiliary head and classifier."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import Mode, batch_norm, init_stats
from istanas_jax.networks.variables import declare_weights, move_stats
from istanas_jax.space.layers import (
    AvgPool,
    Conv,
    Layers,
    Norm,
    Relu,
    Step,
    norm_shapes,
    steps,
)

STEMS = ("cifar", "imagenet")
HEAD_WINDOW = 5  # pooling window of the auxiliary head
HEAD_FEATURES = 768  # features that the auxiliary head classifies by


def stem_layers(stem: str, channels: int) -> tuple[Layers, Layers]:
    """The layers from the image to the first cell's first input, and from there to its second."""
    if stem == "cifar":
        return (Conv(3 * channels), Norm()), ()
    halving = {"strides": (2, 2)}
    first = (Conv(channels // 2, **halving), Norm(), Relu(), Conv(channels, **halving), Norm())
    return first, (Relu(), Conv(channels, **halving), Norm())


def stem_steps(stem: str, channels: int, image_channels: int) -> tuple[list[Step], list[Step]]:
    """The two parts of the stem, weights and batch norms numbered over both."""
    first, second = stem_layers(stem, channels)
    whole = list(steps(first + second, image_channels))
    return whole[: len(first)], whole[len(first) :]


def head_layers(stem: str) -> Layers:
    """The layers of the auxiliary head before its classifier; ImageNet's has one batch norm."""
    return (
        Relu(),
        AvgPool(_head_stride(stem), HEAD_WINDOW, padded=False),
        Conv(128, kernel=(1, 1)),
        Norm(),
        Relu(),
        Conv(HEAD_FEATURES, kernel=(2, 2)),
        *([Norm()] if stem == "cifar" else []),
        Relu(),
    )


def head_needs(stem: str) -> int:
    """Smallest image, in pixels, that the head's pooling leaves 2x2 of for its last kernel."""
    return HEAD_WINDOW + _head_stride(stem)


def _head_stride(stem: str) -> int:
    return 3 if stem == "cifar" else 2


class Stem(nn.Module):
    """Turns images into the two inputs of the first cell; its batch norms always have scales."""

    stem: str
    channels: int
    image_channels: int

    @nn.compact
    def __call__(self, x: Float[Array, "B H W Cin"], mode: Mode):
        first, second = stem_steps(self.stem, self.channels, self.image_channels)
        s0 = _run(self, first, x, mode)
        return s0, _run(self, second, s0, mode)


class AuxiliaryHead(nn.Module):
    """A second classifier behind the last reduction cell, for training only."""

    stem: str
    classes: int

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"], mode: Mode) -> Float[Array, "B classes"]:
        needs = head_needs(self.stem)
        if min(x.shape[1:3]) < needs:
            raise ValueError(
                f"the auxiliary head needs {needs}x{needs} pixels, but only {x.shape[1]}x"
                f"{x.shape[2]} are left of the image there; set auxiliary_weight to 0"
            )
        x = _run(self, list(steps(head_layers(self.stem), x.shape[-1])), x, mode)
        return Classifier(self.classes, name="classifier")(x)


def _run(module: nn.Module, sequence: list[Step], x: Array, mode: Mode) -> Array:
    """Run layers with weights of the module, and a variable for the statistics of each norm."""
    weights, stats = {}, {}
    for step in sequence:
        weights |= declare_weights(module, step.kernels)
        if (n := step.norm) is not None:
            weights |= declare_weights(module, norm_shapes(step.channels, n))
            stats[n] = module.variable("batch_stats", f"stats{n}", init_stats, 1, step.channels)

    def norm(x, n):
        scale, shift = operations.scale_and_shift(weights, n)
        y, moments = batch_norm(x, scale, shift, stats[n].value[0], mode)
        move_stats(module, stats[n], moments[None], mode)
        return y

    return operations.run_steps(sequence, x, weights, norm)


class Classifier(nn.Module):
    """Averages over the pixels and applies a linear layer, in float32."""

    classes: int

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B classes"]:
        x = jnp.mean(x.astype(jnp.float32), (1, 2))
        bound = 1 / math.sqrt(x.shape[-1])

        def uniform(key, shape, dtype=jnp.float32):
            return jax.random.uniform(key, shape, dtype, -bound, bound)

        return nn.Dense(self.classes, kernel_init=uniform, bias_init=uniform, name="linear")(x)
