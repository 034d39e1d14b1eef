"""What the authors' PyTorch release calls each weight, and how it lays it out.

`correspondences` lists, for one network, which array of the release is which part of which of our
variables. `release_state` reads that list in both directions.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from istanas_jax.networks import operations
from istanas_jax.networks.cells import CellPlan, operation_name, plan_cells
from istanas_jax.networks.stem_and_heads import HEAD_FEATURES, head_layers, stem_layers
from istanas_jax.networks.supernet.net import GROUP_NAMES, SuperNet
from istanas_jax.networks.target_net import TargetNet, cell_name
from istanas_jax.space.connections import (
    NUM_INPUTS,
    auxiliary_cell,
    edge_index,
    num_edges,
    stride_of,
)
from istanas_jax.space.layers import (
    FactorisedReduction,
    Layers,
    NormRegime,
    Shape,
    Shapes,
    shapes,
    steps,
)
from istanas_jax.space.operations import find_operation

Path = tuple[str, ...]

# From our order of axes to PyTorch's, by their number: (h, w, in, out) and (in, out) there are
# (out, in, h, w) and (out, in).
_AXES = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}
_MOMENTS = ("running_mean", "running_var")  # in the order of our statistics


class Correspondence(NamedTuple):
    """An array of the release and its place in our variables."""

    name: str  # name in the release
    path: Path  # path of our variable, its collection first
    shape: Shape  # shape of our whole variable
    index: tuple[int, ...] = ()  # the part of it that the array fills

    @property
    def part(self) -> Shape:
        return self.shape[len(self.index) :]

    @property
    def _with_all_axes(self) -> Shape:
        """A part's shape with the axes of length 1 that only PyTorch keeps."""
        if self.path[-1].startswith("depthwise"):
            return (*self.part[:2], 1, self.part[2])
        if self.path[-1].startswith(("pointwise", "even", "odd")):
            return (1, 1, *self.part)
        return self.part

    @property
    def release_shape(self) -> Shape:
        full = self._with_all_axes
        return tuple(full[axis] for axis in _AXES[len(full)])

    def to_release(self, part: np.ndarray) -> np.ndarray:
        full = part.reshape(self._with_all_axes)
        return np.ascontiguousarray(full.transpose(_AXES[full.ndim]))

    def from_release(self, array: np.ndarray) -> np.ndarray:
        return array.transpose(np.argsort(_AXES[array.ndim])).reshape(self.part)


# A factorised reduction is a module of its own there, whose layers have names.
_HALVING = {"even": "conv_1", "odd": "conv_2"}
_HALVING_NORM = "bn"


class _Module(NamedTuple):
    """What the release calls a module's weights (by our names) and batch norms."""

    weights: dict[str, str]
    norms: tuple[str, ...]


FORM = "op.{}"  # of most modules: layer {} of its `op`


def _numbers(layers: Layers, form: str = FORM) -> list[str]:
    """The release numbers layers in the order of execution; all count, ReLU too."""
    return [form.format(number) for number in range(len(layers))]


def _module(layers: Layers, names: Iterable[str]) -> _Module:
    """The release's names of a module's weights, given those of its layers."""
    kernels, norms = {}, []
    halving = any(isinstance(layer, FactorisedReduction) for layer in layers)
    for step, name in zip(steps(layers, 1), names, strict=True):  # shapes do not matter here
        kernels |= {ours: _HALVING[ours] if halving else name for ours in step.kernels}
        if step.norm is not None:
            norms.append(_HALVING_NORM if halving else name)
    weights = {ours: f"{theirs}.weight" for ours, theirs in kernels.items()}
    for n, norm in enumerate(norms):
        weights |= {f"scale{n}": f"{norm}.weight", f"shift{n}": f"{norm}.bias"}
    return _Module(weights, tuple(norms))


def _operation(op: str, stride: int, regime: NormRegime) -> _Module:
    layers = find_operation(op).layers_in(stride, regime)
    return _module(layers, _numbers(layers, find_operation(op).release))


def correspondences(net: TargetNet | SuperNet) -> Iterator[Correspondence]:
    """Every array of the release's network, once, and its place in ours."""
    if isinstance(net, SuperNet):
        plans, concat = net.plans(), (net.space.nodes, net.space.nodes)
    else:
        g = net.genotype
        concat = (len(g.normal_concat), len(g.reduce_concat))
        plans = plan_cells(net.stem, net.cells, net.channels, concat)
    outputs = [concat[plan.reduction] * plan.channels for plan in plans]

    yield from _stem(net)
    for i, plan in enumerate(plans):
        cell = _super_cell if isinstance(net, SuperNet) else _target_cell
        yield from cell(net, plan, f"cells.{i}.", cell_name(i))
    if net.auxiliary:
        yield from _auxiliary(net, outputs[auxiliary_cell(net.cells)])
    yield from _linear("classifier", ("classifier",), outputs[-1], net.classes)


def _stem(net) -> Iterator[Correspondence]:
    first, second = layers = stem_layers(net.stem, net.channels)
    forms = ("stem0.{}", "stem1.{}") if second else ("stem.{}", "")
    names = [name for pair in zip(layers, forms, strict=True) for name in _numbers(*pair)]
    yield from _separate_norms("", ("stem",), first + second, names, net.image_channels)


def _auxiliary(net, channels: int) -> Iterator[Correspondence]:
    layers = head_layers(net.stem)
    names = _numbers(layers, "features.{}")
    yield from _separate_norms("auxiliary_head.", ("auxiliary",), layers, names, channels)
    path = ("auxiliary", "classifier")
    yield from _linear("auxiliary_head.classifier", path, HEAD_FEATURES, net.classes)


def _linear(name: str, path: Path, inputs: int, outputs: int) -> Iterator[Correspondence]:
    path = ("params", *path, "linear")
    yield Correspondence(f"{name}.weight", (*path, "kernel"), (inputs, outputs))
    yield Correspondence(f"{name}.bias", (*path, "bias"), (outputs,))


def _separate_norms(
    prefix: str, path: Path, layers: Layers, names: list[str], channels: int
) -> Iterator[Correspondence]:
    """Stem and auxiliary head: each batch norm has a variable for its own statistics."""
    module, weights = _module(layers, names), shapes(layers, channels, affine=True)
    yield from _weights(prefix, path, module, weights)
    for n, norm in enumerate(module.norms):
        shape = (1, 2, *weights[f"scale{n}"])
        yield from _stats(prefix, (norm,), (*path, f"stats{n}"), shape)


def _preprocess(plan: CellPlan, regime: NormRegime):
    """The two preprocessings of a cell: (our name, the release's, module, shapes)."""
    for n, channels_in, halve in ((0, plan.in0, plan.halve), (1, plan.in1, False)):
        layers = operations.preprocess_layers(plan.channels, halve)
        weights = operations.preprocess_shapes(channels_in, plan.channels, halve, regime)
        yield f"pre{n}", f"preprocess{n}.", _module(layers, _numbers(layers)), weights


def _target_cell(net: TargetNet, plan: CellPlan, prefix: str, cell: str):
    regime, c = operations.REGIMES[net.regime], plan.channels
    parts = list(_preprocess(plan, regime))
    number = 0
    for j, node in enumerate(net.genotype.reduce if plan.reduction else net.genotype.normal):
        for k, (op, predecessor) in enumerate(node):
            stride = stride_of(predecessor, plan.reduction)
            weights = operations.weight_shapes(op, c, stride, regime)
            module = _operation(op, stride, regime)
            parts.append((operation_name(j, k), f"_ops.{number}.", module, weights))
            number += 1
    for name, theirs, module, weights in parts:
        yield from _weights(prefix + theirs, (cell, name), module, weights)
        shape = (len(module.norms), 2, c)
        yield from _stats(prefix + theirs, module.norms, (cell, name, "stats"), shape)


def _super_cell(net: SuperNet, plan: CellPlan, prefix: str, cell: str):
    spec, c = net.spec(plan), plan.channels
    for n, (name, theirs, module, weights) in enumerate(_preprocess(plan, spec.regime)):
        yield from _weights(prefix + theirs, (cell, name), module, weights)
        path, shape = (cell, "pre_stats"), (NUM_INPUTS, 1, 2, c)
        yield from _stats(prefix + theirs, module.norms, path, shape, (n,))
    norms = operations.max_norms(net.space.operations)
    path, shape = (cell, "stats"), (num_edges(net.space.nodes), net.space.num_ops, norms, 2, c)
    groups = zip(GROUP_NAMES[plan.reduction], spec.strides, spec.groups, strict=True)
    for group, stride, edges in groups:
        for (place, edge), (o, op) in product(enumerate(edges), enumerate(net.space.operations)):
            number = edge_index(*edge)
            theirs = f"{prefix}_ops.{number}._ops.{o}."
            module = _operation(op, stride, spec.regime)
            stack = {"stack": (len(edges),), "index": (place,)}
            yield from _weights(theirs, (cell, group, op), module, spec.shapes(op, stride), **stack)
            yield from _stats(theirs, module.norms, path, shape, (number, o))


def _weights(
    prefix: str, path: Path, module: _Module, shapes: Shapes, *, stack=(), index=()
) -> Iterator[Correspondence]:
    for ours, shape in shapes.items():
        name = prefix + module.weights[ours]
        yield Correspondence(name, ("params", *path, ours), (*stack, *shape), index)


def _stats(
    prefix: str, norms: Iterable[str], path: Path, shape: Shape, index: tuple[int, ...] = ()
) -> Iterator[Correspondence]:
    for n, norm in enumerate(norms):
        for m, moment in enumerate(_MOMENTS):
            name = f"{prefix}{norm}.{moment}"
            yield Correspondence(name, ("batch_stats", *path), shape, (*index, n, m))
