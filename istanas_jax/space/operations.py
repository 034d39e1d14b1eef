"""The operations that a search space can have, one record each: to add one, add a record.

Everything else is derived from the record: weights and their shapes, batch norms, what is computed,
parameters and multiply-adds, folding for inference, names in the authors' release, colours. A
record may also lie in a file of one's own: `my_operations.py:squeeze` is the one called `squeeze`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from istanas_jax.space import layers as _layers
from istanas_jax.space.layers import (
    AvgPool,
    Conv,
    Depthwise,
    FactorisedReduction,
    Identity,
    Layers,
    MaxPool,
    Noise,
    Norm,
    NormRegime,
    Pointwise,
    Relu,
    Shapes,
    Zero,
)
from istanas_jax.space.wording import suggest

STRIDES = (1, 2)
NONE = "none"  # what DARTS calls the zero operation
AUXILIARY_SKIP = "auxiliary_skip"  # no candidate: runs beside every connection that is kept


@dataclass(frozen=True)
class Operation:
    """An operation: it keeps the number of channels, and divides height and width by its stride.

    A batch norm that only some regimes have must be the operation's only one: networks tell by the
    number of batch norms whether it is there.
    """

    name: str
    layers: Callable[[int], Layers]  # the layers at a stride of 1 or 2
    colour: str  # one of `look.colours.COLOURS`
    release: str = "op.{}"  # how the authors' release names layer {}, counted from 0

    def __post_init__(self):
        for stride in STRIDES:
            norms = [layer for layer in self.layers(stride) if isinstance(layer, Norm)]
            if len(norms) > 1 and any(norm.only for norm in norms):
                raise ValueError(f"{self.name}: a batch norm of some regimes must be the only one")
            self._check_sizes(stride)

    def _check_sizes(self, stride: int) -> None:
        """Raise if the output is not what a node sums up."""
        size, channels = (8, 8), 8
        for layer in self.layers(stride):
            if isinstance(layer, Norm) and channels != 8:
                raise ValueError(
                    f"operation {self.name}: a batch norm sees {channels} channels where the "
                    "operation has 8; only those that see as many as the operation are possible"
                )
            size, channels = layer.size_out(size), layer.channels_out(channels)
        if channels != 8 or size != (8 // stride, 8 // stride):
            raise ValueError(
                f"operation {self.name} has no stride {stride}: 8 channels of 8 x 8 pixels become "
                f"{channels} of {size[0]} x {size[1]}"
            )

    def layers_in(self, stride: int, regime: NormRegime) -> Layers:
        """The layers that exist in a regime."""
        return tuple(
            layer
            for layer in self.layers(stride)
            if not isinstance(layer, Norm) or layer.exists(regime)
        )

    def num_norms(self, stride: int, regime: NormRegime) -> int:
        return _layers.num_norms(self.layers_in(stride, regime))

    def shapes(self, channels: int, stride: int, regime: NormRegime) -> Shapes:
        return _layers.shapes(self.layers_in(stride, regime), channels, affine=regime.affine)

    @property
    def weight_free(self) -> bool:
        """Whether it learns nothing at stride 1, apart from scales of a batch norm."""
        kept = [layer for layer in self.layers(1) if not isinstance(layer, Noise)]
        return not _layers.shapes(kept, 1, affine=False)

    def is_identity(self, stride: int) -> bool:
        """Whether the output is the input, apart from a batch norm."""
        return all(isinstance(layer, Identity | Norm) for layer in self.layers(stride))


def pooling(pool: type[MaxPool] | type[AvgPool]) -> Callable[[int], Layers]:
    return lambda stride: (pool(stride), Norm(only="pools"))


def skip(stride: int) -> Layers:
    """The identity, or at stride 2 a factorised reduction."""
    if stride == 1:
        return (Identity(), Norm(only="identity"))
    return (Relu(), FactorisedReduction(), Norm())


def separable(kernel: int) -> Callable[[int], Layers]:
    """Two separable convolutions, of which the first has the stride."""

    def block(stride: int) -> Layers:
        return (Relu(), Depthwise(stride, kernel), Pointwise(), Norm())

    return lambda stride: block(stride) + block(1)


def dilated(kernel: int) -> Callable[[int], Layers]:
    return lambda stride: (Relu(), Depthwise(stride, kernel, dilation=2), Pointwise(), Norm())


def one_by_seven_then_seven_by_one(stride: int) -> Layers:
    """Each of the two convolutions strides in its own direction."""
    return (
        Relu(),
        Conv(kernel=(1, 7), strides=(1, stride)),
        Conv(kernel=(7, 1), strides=(stride, 1)),
        Norm(),
    )


def convolution(kernel: int) -> Callable[[int], Layers]:
    return lambda stride: (Relu(), Conv(kernel=(kernel,) * 2, strides=(stride,) * 2), Norm())


RECORDS = (
    Operation("max_pool_3x3", pooling(MaxPool), "blue", release="{}"),
    Operation("avg_pool_3x3", pooling(AvgPool), "sky blue", release="{}"),
    Operation("skip_connect", skip, "green", release="{}"),
    Operation("sep_conv_3x3", separable(3), "vermilion"),
    Operation("sep_conv_5x5", separable(5), "vermilion"),
    Operation("dil_conv_3x3", dilated(3), "orange"),
    Operation("dil_conv_5x5", dilated(5), "orange"),
    # Some published cells use these.
    Operation("sep_conv_7x7", separable(7), "vermilion"),
    Operation("conv_7x1_1x7", one_by_seven_then_seven_by_one, "purple", release="{}"),
    # NAS-Bench-201's.
    Operation("nor_conv_1x1", convolution(1), "sky blue"),
    Operation("nor_conv_3x3", convolution(3), "purple"),
    # RobustDARTS's.
    Operation(NONE, lambda stride: (Zero(stride),), "blue", release="{}"),
    Operation("noise", lambda stride: (Noise(stride), Norm(only="identity")), "purple"),
    # DARTS-Bench-Suite's.
    Operation(AUXILIARY_SKIP, skip, "green", release="{}"),
)
BY_NAME = {record.name: record for record in RECORDS}


def is_from_file(name: str) -> bool:
    """Whether it names an operation in a file of one's own, which need not be there."""
    file, _, own = name.rpartition(":")
    return file.endswith(".py") and own.isidentifier()


@functools.cache
def find_operation(name: str) -> Operation:
    """The record of an operation; one from a file runs the file."""
    if name in BY_NAME:
        return BY_NAME[name]
    if not is_from_file(name):
        raise ValueError(f"unknown operation {name!r}{suggest(name, list(BY_NAME))}")
    file, _, own = name.rpartition(":")
    if not os.path.isfile(file):
        raise ValueError(f"operation {name}: there is no file {file}")
    try:
        records = _records_in(os.path.abspath(file))
    except Exception as error:  # a program of somebody else may fail in any way
        raise ValueError(f"operation {name}: {file} fails with {error!r}") from error
    if own not in records:
        raise ValueError(f"{file} has no operation {own!r}{suggest(own, list(records))}")
    return replace(records[own], name=name)


@functools.cache
def _records_in(file: str) -> dict[str, Operation]:
    """The operations of a file, which is run once, as a module that dataclasses find."""
    name = f"istanas_operations_{hashlib.sha256(file.encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {r.name: r for r in vars(module).values() if isinstance(r, Operation)}
