"""How large a network is and what an image costs, without running it.

Counts are for one image in evaluation, where the auxiliary head does not run. They are sums over
layers, the same that the networks compute: `count` and `count_supernet` take about a millisecond,
so a budget can use them inside a search.

multiply_adds: those of convolutions and linear layers.

flops: the rule behind the paper's "638 M FLOPs" (637,963,432), the one of the ptflops counter. A
multiply-add is 1, and the other layers add

- batch norm: 2 per element, 1 if it has no scale and shift;
- ReLU: 1 per element;
- pooling, the last one over all pixels too: 1 per element of its input;
- the classifier's bias: 1 per class;

whereas the sums of nodes, coefficients, identity and concatenation are free.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from istanas_jax.networks import operations
from istanas_jax.networks.cells import CellPlan, plan_cells
from istanas_jax.networks.stem_and_heads import HEAD_FEATURES, head_layers, head_needs, stem_steps
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.space.connections import NUM_INPUTS, auxiliary_cell, stride_of
from istanas_jax.space.genotype import Cell, Genotype
from istanas_jax.space.layers import (
    AvgPool,
    Layer,
    MaxPool,
    Norm,
    NormRegime,
    Relu,
    Size,
    Step,
    shapes,
    steps,
)
from istanas_jax.space.operations import find_operation


class NetSizes(NamedTuple):
    """The sizes that turn a genotype into a network."""

    channels: int
    cells: int
    classes: int
    image_size: int


SIZES = {  # as in the paper
    "cifar": NetSizes(channels=36, cells=20, classes=10, image_size=32),
    "imagenet": NetSizes(channels=48, cells=14, classes=1000, image_size=224),
}


class Work(NamedTuple):
    """The size of a part of a network, and what one image costs there."""

    parameters: int = 0
    multiply_adds: int = 0
    elementwise: int = 0  # what `flops` counts beside the multiply-adds

    @property
    def flops(self) -> int:
        return self.multiply_adds + self.elementwise


class Counts(NamedTuple):
    """The size of a network and what one image costs; `cells` has the parts."""

    parameters: int
    parameters_with_auxiliary: int | None  # None if the image is too small for the head
    multiply_adds: int
    flops: int
    cells: tuple[Work, ...]


def count(net: TargetNet, image_size: int | None = None) -> Counts:
    """The work of a target net; `image_size` is that of the paper for the net's stem if None."""
    g = net.genotype
    concat = (len(g.normal_concat), len(g.reduce_concat))
    return _count(net, (g.normal, g.reduce), concat, image_size)


def count_supernet(
    net: SuperNet, support: Sequence | np.ndarray | None = None, image_size: int | None = None
) -> Counts:
    """The work of a super-net: all candidates or, given a support, only those in it.

    support: (types, nodes, s) flat indices, normal before reduction cell. The parameters are
      those of the active connections then: the size of the net that the search would end with.
    """
    space = net.space
    if support is None:
        cells = [
            [list(map(space.connection, space.everything_at(c, j))) for j in range(space.nodes)]
            for c in range(2)
        ]
    else:
        support, expected = np.asarray(support), (2, space.nodes, space.most)
        if support.shape != expected:
            raise ValueError(f"the shape of the support is {support.shape}, expected {expected}")
        genotype = Genotype.from_supports(*support.tolist(), space)
        cells = (genotype.normal, genotype.reduce)
    return _count(net, cells, (space.nodes, space.nodes), image_size)


def _count(net, cells: Sequence[Cell], concat: tuple[int, int], image_size: int | None) -> Counts:
    regime = operations.REGIMES[net.regime]
    plans = plan_cells(net.stem, net.cells, net.channels, concat)
    image_size = seen_size(net, image_size or SIZES[net.stem].image_size)
    stem, sizes = _stem_work(net.stem, net.channels, net.image_channels, image_size)
    works, head = [], None
    for index, plan in enumerate(plans):
        part = plan.channels // getattr(net, "partial", 1)
        works.append(cell_work(plan, cells[plan.reduction], sizes, regime, part))
        sizes = sizes[1], _halved(sizes[1]) if plan.reduction else sizes[1]
        features = concat[plan.reduction] * plan.channels
        if index == auxiliary_cell(net.cells):
            head = _head_parameters(net.stem, features, sizes[1], net.classes)
    linear = features * net.classes
    pool_and_bias = features * sizes[1] ** 2 + net.classes
    total = _sum([stem, *works, Work(linear + net.classes, linear, pool_and_bias)])
    with_head = None if head is None else total.parameters + head
    return Counts(total.parameters, with_head, total.multiply_adds, total.flops, tuple(works))


def seen_size(net: SuperNet | TargetNet, image_size: int) -> int:
    """The width, in pixels, of the images that the stem sees."""
    return image_size // getattr(net, "shrink", 1)


def cell_places(net: TargetNet, image_size: int) -> Iterator[tuple[CellPlan, int, int]]:
    """Each cell's plan, and the widths of its second input and of its nodes in pixels."""
    seen = seen_size(net, image_size)
    _, (_, size) = _stem_work(net.stem, net.channels, net.image_channels, seen)
    for plan in net.plans():
        inner = _halved(size) if plan.reduction else size
        yield plan, size, inner
        size = inner


def cell_work(
    plan: CellPlan, nodes: Cell, sizes: tuple[int, int], regime: NormRegime, part: int | None = None
) -> Work:
    """The work of a cell of these nodes; `sizes` are the widths of its two inputs in pixels.

    part: the number of channels that operations see, if not all.
    """
    outer = sizes[1]
    inner = _halved(outer) if plan.reduction else outer
    works = [
        preprocess_work(plan.in0, plan.channels, sizes[0], plan.halve, regime),
        preprocess_work(plan.in1, plan.channels, outer, False, regime),
    ]
    for op, predecessor in itertools.chain(*nodes):
        size = outer if predecessor < NUM_INPUTS else inner
        stride = stride_of(predecessor, plan.reduction)
        works.append(operation_work(op, part or plan.channels, size, stride, regime))
    return _sum(works)


@functools.cache
def operation_work(op: str, channels: int, size: int, stride: int, regime: NormRegime) -> Work:
    """The work of one operation on an image of `size` by `size` pixels."""
    sequence = find_operation(op).layers_in(stride, regime)
    return layers_work(steps(sequence, channels), channels, (size, size), affine=regime.affine)


@functools.cache
def preprocess_work(
    channels_in: int, channels: int, size: int, halve: bool, regime: NormRegime
) -> Work:
    """The work of bringing an input of `size` by `size` pixels to a cell's channels and size."""
    sequence = steps(operations.preprocess_layers(channels, halve), channels_in)
    return layers_work(sequence, channels_in, (size, size), affine=regime.affine)


def layers_work(sequence: Iterable[Step], channels: int, size: Size, *, affine: bool) -> Work:
    """The work of layers on an image of this size; affine: norms have scale and shift."""
    parameters = multiply_adds = elementwise = 0
    for step in sequence:
        out = step.layer.size_out(size)
        parameters += sum(map(math.prod, step.kernels.values()))
        multiply_adds += layer_multiply_adds(step.layer, channels, size)
        match step.layer:
            case Norm():
                parameters += 2 * affine * step.channels
                elementwise += (1 + affine) * step.channels * math.prod(out)
            case Relu() | MaxPool() | AvgPool():
                elementwise += channels * math.prod(size)
        channels, size = step.channels, out
    return Work(parameters, multiply_adds, elementwise)


def layer_multiply_adds(layer: Layer, channels: int, size: Size) -> int:
    """What a layer says, or what is counted in its program if a layer of one's own says nothing."""
    if not hasattr(layer, "apply") or type(layer).multiply_adds is not Layer.multiply_adds:
        return layer.multiply_adds(channels, size)
    return _compiled_multiply_adds(layer, channels, size)


@functools.cache
def _compiled_multiply_adds(layer: Layer, channels: int, size: Size) -> int:
    shapes = [(1, *size, channels), *layer.kernels(channels).values()]
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    analysis = jax.jit(layer.apply).lower(*arrays).compile().cost_analysis() or {}
    return round(analysis.get("flops", 0) / 2)


def _stem_work(stem: str, channels: int, image_channels: int, size: int):
    """The work of the stem, and the widths of the first cell's two inputs."""
    first, second = stem_steps(stem, channels, image_channels)
    between, end = (_size_after(part, (size, size)) for part in (first, first + second))
    work = layers_work(first + second, image_channels, (size, size), affine=True)
    return work, (between[0], end[0])


def _size_after(sequence: Iterable[Step], size: Size) -> Size:
    return functools.reduce(lambda size, step: step.layer.size_out(size), sequence, size)


def _head_parameters(stem: str, channels: int, size: int, classes: int) -> int | None:
    """Parameters of the auxiliary head; None if the image is too small for it."""
    if size < head_needs(stem):
        return None
    weights = shapes(head_layers(stem), channels, affine=True)
    return sum(map(math.prod, weights.values())) + (HEAD_FEATURES + 1) * classes


def _halved(size: int) -> int:
    return -(-size // 2)


def _sum(works: Iterable[Work]) -> Work:
    return Work(*map(sum, zip(*works, strict=True)))
