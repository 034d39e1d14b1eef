"""Layers: what operations, preprocessings, stems and auxiliary heads are made of.

A sequence of layers is data. Everything else follows from it, each by one reader: names and shapes
of weights (`shapes`, here), what is computed (`networks.operations.run_steps`), what it costs
(`networks.counting.layers_work`), which batch norm folds into which kernel (`deploy.folding`) and
what the weights are called in the authors' release (`deploy.release_names`).

Kernels are (h, w, in, out), depthwise ones (h, w, C), 1x1 ones (in, out). Images are padded by half
a kernel on each side, at every stride.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

Shape = tuple[int, ...]
Shapes = dict[str, Shape]  # by the weights' names
Size = tuple[int, int]  # height and width of an image


@dataclass(frozen=True)
class NormRegime:
    """Which batch norms a network has."""

    affine: bool  # scale and shift
    pools: bool  # one after each pooling
    identity: bool  # one after each stride-1 skip-connection


@dataclass(frozen=True)
class Layer:
    """A layer without weights that keeps channels and size; subclasses override what differs.

    One of a file of your own also has `apply(x, *kernels)`, which computes it. Unless it says how
    many `multiply_adds` it takes, these are counted in its compiled program.
    """

    def kernels(self, channels: int) -> dict[str, Shape]:
        """Names, without numbers, and shapes of its kernels, given the channels of its input."""
        return {}

    def channels_out(self, channels: int) -> int:
        return channels

    def size_out(self, size: Size) -> Size:
        return size

    def multiply_adds(self, channels: int, size: Size) -> int:
        """Of an input of these channels and this size: a kernel is used once per output pixel."""
        weights = sum(map(math.prod, self.kernels(channels).values()))
        return weights * math.prod(self.size_out(size))


@dataclass(frozen=True)
class Identity(Layer):
    """The input itself."""


@dataclass(frozen=True)
class Relu(Layer):
    """max(x, 0)."""


@dataclass(frozen=True)
class Norm(Layer):
    """Batch norm; if `only` names a field of NormRegime, only in regimes in which that is true."""

    only: str | None = None

    def exists(self, regime: NormRegime) -> bool:
        return self.only is None or getattr(regime, self.only)


@dataclass(frozen=True)
class _Strided(Layer):
    stride: int = 1

    def size_out(self, size: Size) -> Size:
        return _divided(size, (self.stride, self.stride))


@dataclass(frozen=True)
class MaxPool(_Strided):
    window: int = 3


@dataclass(frozen=True)
class AvgPool(_Strided):
    """Mean over the pixels of a window that lie inside the image."""

    window: int = 3
    padded: bool = True

    def size_out(self, size: Size) -> Size:
        if self.padded:
            return super().size_out(size)
        height, width = ((n - self.window) // self.stride + 1 for n in size)
        return height, width


@dataclass(frozen=True)
class Zero(_Strided):
    """0, whatever the input is."""


@dataclass(frozen=True)
class Noise(_Strided):
    """Normal noise, whatever the input is.

    Its random key is a weight. No gradient reaches that, and weight decay moves it: so the noise
    differs from place to place and from step to step, and yet is a function of the state that is
    the same in every form of a network. Without weight decay it stands still.
    """

    def kernels(self, channels: int) -> dict[str, Shape]:
        return {"noise": (1, 1)}

    def multiply_adds(self, channels: int, size: Size) -> int:
        return 0


@dataclass(frozen=True)
class Depthwise(_Strided):
    """One kernel per channel."""

    kernel: int = 3
    dilation: int = 1

    def kernels(self, channels: int) -> dict[str, Shape]:
        return {"depthwise": (self.kernel, self.kernel, channels)}


@dataclass(frozen=True)
class _Widening(Layer):
    channels: int | None = None  # of the output; None: those of the input

    def channels_out(self, channels: int) -> int:
        return self.channels or channels


@dataclass(frozen=True)
class Pointwise(_Widening):
    """1x1 convolution."""

    def kernels(self, channels: int) -> dict[str, Shape]:
        return {"pointwise": (channels, self.channels_out(channels))}


@dataclass(frozen=True)
class Conv(_Widening):
    """Convolution of a kernel of any height and width."""

    kernel: Size = (3, 3)
    strides: Size = (1, 1)

    def kernels(self, channels: int) -> dict[str, Shape]:
        return {"conv": (*self.kernel, channels, self.channels_out(channels))}

    def size_out(self, size: Size) -> Size:
        kept = ((n - (k + 1) % 2) for n, k in zip(size, self.kernel, strict=True))
        return _divided(kept, self.strides)


@dataclass(frozen=True)
class FactorisedReduction(_Widening):
    """Stride 2: one half of the channels from even pixels, the other half from odd ones."""

    def kernels(self, channels: int) -> dict[str, Shape]:
        half = self.channels_out(channels) // 2
        return {"even": (channels, half), "odd": (channels, half)}

    def size_out(self, size: Size) -> Size:
        return _divided(size, (2, 2))


CONVOLUTIONS = (Depthwise, Pointwise, Conv, FactorisedReduction)  # a factor can go into the kernels
Layers = tuple[Layer, ...]


class Step(NamedTuple):
    """A layer in its place in a sequence."""

    layer: Layer
    channels: int  # of its output
    kernels: Shapes
    norm: int | None  # number of a batch norm, counted from 0


def steps(layers: Iterable[Layer], channels: int) -> Iterator[Step]:
    """Number the layers' kernels and batch norms, in the order in which they are used.

    channels: those of the input.
    """
    seen: Counter[str] = Counter()
    for layer in layers:
        kernels = {}
        for name, shape in layer.kernels(channels).items():
            numbered = name if isinstance(layer, FactorisedReduction) else f"{name}{seen[name]}"
            kernels[numbered] = shape
            seen[name] += 1
        norm = seen["norm"] if isinstance(layer, Norm) else None
        seen["norm"] += norm is not None
        channels = layer.channels_out(channels)
        yield Step(layer, channels, kernels, norm)


def shapes(layers: Iterable[Layer], channels: int, *, affine: bool) -> Shapes:
    """Names and shapes of all weights: the kernels as they are used, then scales and shifts."""
    kernels, norms = {}, {}
    for step in steps(layers, channels):
        kernels |= step.kernels
        if affine and step.norm is not None:
            norms |= norm_shapes(step.channels, step.norm)
    return kernels | norms


def norm_shapes(channels: int, n: int = 0) -> Shapes:
    return {f"scale{n}": (channels,), f"shift{n}": (channels,)}


def fan_in(name: str, shape: Shape) -> int:
    """Number of inputs an output of the kernel sums over; leading axes stack several kernels."""
    if name.startswith("depthwise"):
        return math.prod(shape[-3:-1])
    return math.prod(shape[-4:-1]) if name.startswith("conv") else shape[-2]


def num_norms(layers: Iterable[Layer]) -> int:
    return sum(isinstance(layer, Norm) for layer in layers)


def _divided(size: Iterable[int], strides: Size) -> Size:
    """Pixels at which a window is centred, of which the first is the image's first."""
    height, width = (-(-n // stride) for n, stride in zip(size, strides, strict=True))
    return height, width
