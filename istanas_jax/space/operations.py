"""The operations of the search space, one record each: to add an operation, add a record.

Everything else is derived from the record: weights and their shapes, batch norms, what is computed,
parameters and multiply-adds, folding for inference, names in the authors' release, colours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from istanas_jax.space import layers as _layers
from istanas_jax.space.layers import (
    AvgPool,
    Conv,
    Depthwise,
    FactorisedReduction,
    Identity,
    Layers,
    MaxPool,
    Norm,
    NormRegime,
    Pointwise,
    Relu,
    Shapes,
)

STRIDES = (1, 2)


@dataclass(frozen=True)
class Operation:
    """An operation: it keeps the number of channels, and divides height and width by its stride.

    A batch norm that only some regimes have must be the operation's only one: networks tell by the
    number of batch norms whether it is there.
    """

    name: str
    layers: Callable[[int], Layers]  # the layers at a stride of 1 or 2
    colour: str  # one of `look.colours.COLOURS`
    searched: bool = True  # a candidate of every search; otherwise for given genotypes only
    release: str = "op.{}"  # how the authors' release names layer {}, counted from 0

    def __post_init__(self):
        for stride in STRIDES:
            norms = [layer for layer in self.layers(stride) if isinstance(layer, Norm)]
            if len(norms) > 1 and any(norm.only for norm in norms):
                raise ValueError(f"{self.name}: a batch norm of some regimes must be the only one")

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
        return not _layers.shapes(self.layers(1), 1, affine=False)

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


RECORDS = (
    Operation("max_pool_3x3", pooling(MaxPool), "blue", release="{}"),
    Operation("avg_pool_3x3", pooling(AvgPool), "sky blue", release="{}"),
    Operation("skip_connect", skip, "green", release="{}"),
    Operation("sep_conv_3x3", separable(3), "vermilion"),
    Operation("sep_conv_5x5", separable(5), "vermilion"),
    Operation("dil_conv_3x3", dilated(3), "orange"),
    Operation("dil_conv_5x5", dilated(5), "orange"),
    # Some published cells use these.
    Operation("sep_conv_7x7", separable(7), "vermilion", searched=False),
    Operation(
        "conv_7x1_1x7", one_by_seven_then_seven_by_one, "purple", searched=False, release="{}"
    ),
)
BY_NAME = {record.name: record for record in RECORDS}
