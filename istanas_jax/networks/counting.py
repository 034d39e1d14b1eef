"""How large a network is and what an image costs, without running it.

Counts are for one image in evaluation, where the auxiliary head does not run. They are sums over
the tables of shapes from which operations make their weights: `count` and `count_supernet` take
about a millisecond, and serve a budget inside a search too.

multiply_adds: of convolutions and linear layers.

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
from istanas_jax.networks.operations import NormRegime
from istanas_jax.networks.supernet import SuperNet
from istanas_jax.networks.target_net import TargetNet, cell_name, init_target
from istanas_jax.space.connections import (
    NUM_INPUTS,
    OPERATIONS,
    Connection,
    auxiliary_cell,
    num_predecessors,
)
from istanas_jax.space.genotype import Cell, Genotype, published


class NetSizes(NamedTuple):
    """What makes a network of a genotype."""

    channels: int
    cells: int
    classes: int
    image_size: int


SIZES = {  # of the paper
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
    if support is None:
        everything = [
            [Connection(op, i) for i in range(num_predecessors(node)) for op in OPERATIONS]
            for node in range(net.num_nodes)
        ]
        cells = (everything, everything)
    else:
        support, expected = np.asarray(support), (2, net.num_nodes, net.s)
        if support.shape != expected:
            raise ValueError(f"the shape of the support is {support.shape}, expected {expected}")
        genotype = Genotype.from_supports(*support.tolist())
        cells = (genotype.normal, genotype.reduce)
    return _count(net, cells, (net.num_nodes, net.num_nodes), image_size)


def _count(net, cells: Sequence[Cell], concat: tuple[int, int], image_size: int | None) -> Counts:
    regime = operations.REGIMES[net.regime]
    plans = plan_cells(net.stem, net.cells, net.channels, concat)
    image_size = image_size or SIZES[net.stem].image_size
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


def cell_places(net: TargetNet, image_size: int) -> Iterator[tuple[CellPlan, int, int]]:
    """Of each cell its plan, and the width of its second input and of its nodes in pixels."""
    _, (_, size) = _stem_work(net.stem, net.channels, net.image_channels, image_size)
    for plan in net.plans():
        inner = _halved(size) if plan.reduction else size
        yield plan, size, inner
        size = inner


def cell_work(
    plan: CellPlan, nodes: Cell, sizes: tuple[int, int], regime: NormRegime, part: int | None = None
) -> Work:
    """A cell of these nodes; `sizes` are the widths of its two inputs in pixels.

    part: channels that operations see, if not all.
    """
    outer = sizes[1]
    inner = _halved(outer) if plan.reduction else outer
    works = [
        preprocess_work(plan.in0, plan.channels, sizes[0], plan.halve, regime),
        preprocess_work(plan.in1, plan.channels, outer, False, regime),
    ]
    for op, predecessor in itertools.chain(*nodes):
        size, stride = (outer, 1 + plan.reduction) if predecessor < NUM_INPUTS else (inner, 1)
        works.append(operation_work(op, part or plan.channels, size, stride, regime))
    return _sum(works)


@functools.cache
def operation_work(op: str, channels: int, size: int, stride: int, regime: NormRegime) -> Work:
    """One operation on an image of `size` by `size` pixels."""
    shapes = operations.weight_shapes(op, channels, stride, regime)
    norms = operations.num_norms(op, stride, regime)
    out = -(-size // stride)
    elementwise = norms * (1 + regime.affine) * channels * out**2
    if op != "skip_connect" or stride != 1:
        elementwise += channels * size**2  # pooling, or the ReLU before a convolution
    if op.startswith("sep_conv"):
        elementwise += channels * out**2  # the ReLU before the second one
    # A separable convolution strides in its first kernel; 1x7 and 7x1 take one direction each.
    pixels = dict.fromkeys(shapes, out**2) | {"conv0": size * out}
    return _from_shapes(shapes, pixels, elementwise)


@functools.cache
def preprocess_work(
    channels_in: int, channels: int, size: int, halve: bool, regime: NormRegime
) -> Work:
    """What brings a cell's input of `size` by `size` pixels to its channels and size."""
    shapes = operations.preprocess_shapes(channels_in, channels, halve, regime)
    out = _halved(size) if halve else size
    elementwise = channels_in * size**2 + (1 + regime.affine) * channels * out**2
    return _from_shapes(shapes, dict.fromkeys(shapes, out**2), elementwise)


def _from_shapes(shapes: dict[str, tuple[int, ...]], pixels: dict[str, int], elementwise) -> Work:
    """Each kernel is used once per pixel that it makes, depthwise ones too."""
    kernels = [name for name in shapes if not name.startswith(("scale", "shift"))]
    return Work(
        sum(map(math.prod, shapes.values())),
        sum(math.prod(shapes[name]) * pixels[name] for name in kernels),
        elementwise,
    )


def _stem_work(kind: str, channels: int, image_channels: int, size: int):
    """The stem, and the sizes of the first cell's two inputs."""
    if kind == "cifar":
        return _conv_norm(image_channels, 3 * channels, size), (size, size)
    sizes = [size := _halved(size) for _ in range(3)]
    widths = (image_channels, channels // 2, channels, channels)
    works = [_conv_norm(widths[n], widths[n + 1], sizes[n]) for n in range(3)]
    relus = Work(elementwise=sum(widths[n + 1] * sizes[n] ** 2 for n in range(2)))
    return _sum((*works, relus)), (sizes[1], sizes[2])


def _conv_norm(channels_in: int, channels: int, size: int) -> Work:
    """3x3 convolution and batch norm with scale and shift, making `size` by `size` pixels."""
    kernel = 9 * channels_in * channels
    return Work(kernel + 2 * channels, kernel * size**2, 2 * channels * size**2)


def _head_parameters(stem: str, channels: int, size: int, classes: int) -> int | None:
    """Of the auxiliary head; None if its 5x5 pooling leaves less than its second kernel's 2x2."""
    stride, norms = (3, 128 + 768) if stem == "cifar" else (2, 128)
    if size < 5 + stride:
        return None
    return channels * 128 + 4 * 128 * 768 + 2 * norms + (768 + 1) * classes


def _halved(size: int) -> int:
    return -(-size // 2)


def _sum(works: Iterable[Work]) -> Work:
    return Work(*map(sum, zip(*works, strict=True)))


def describe(genotype: Genotype, *, net: str = "cifar", one_stage: bool = False, **sizes) -> dict:
    """The figures of a genotype's network, ready for JSON.

    Parameters are read off the shapes of the network's own variables, which are exact whatever
    the network is made of. The memory needs a compilation, which takes some seconds.

    Args:
      net: "cifar" or "imagenet".
      one_stage: with the batch norms of one-stage nets.
      sizes: any of NetSizes' fields; those missing or None are the paper's.
    """
    if net not in SIZES:
        raise ValueError(f"unknown net {net!r}, there are: {', '.join(SIZES)}")
    sizes = SIZES[net]._replace(**{k: v for k, v in sizes.items() if v is not None})._asdict()
    image_size = sizes.pop("image_size")
    regime = "one_stage" if one_stage else "retrain"
    target = TargetNet(genotype, **sizes, stem=net, regime=regime)
    counts = count(target, image_size)
    whole = target.clone(auxiliary=counts.parameters_with_auxiliary is not None)
    variables = jax.eval_shape(lambda key: init_target(whole, key, image_size), jax.random.key(0))
    parts = {
        name: sum(leaf.size for leaf in jax.tree.leaves(part))
        for name, part in variables["params"].items()
    }
    auxiliary = parts.pop("auxiliary", None)
    parameters = sum(parts.values())
    memory = forward_memory(target, variables, image_size)
    return {
        "name": next((name for name, known in published().items() if known == genotype), None),
        "genotype": genotype.to_text(),
        "net": net,
        **sizes,
        "image_size": image_size,
        "one_stage": one_stage,
        "parameters": parameters,
        "parameters_with_auxiliary": None if auxiliary is None else parameters + auxiliary,
        "multiply_adds": counts.multiply_adds,
        "flops": counts.flops,
        "parameters_per_cell": [parts[cell_name(index)] for index in range(target.cells)],
        "forward_memory_mb": None if memory is None else round(memory / 1e6, 3),
        "forward_memory_meaning": "temporary buffers (10^6 bytes) of the compiled evaluation of "
        f"one float32 image on {jax.default_backend()}, parameters not counted",
    }


def forward_memory(net: TargetNet, variables, image_size: int) -> int | None:
    """Bytes of temporary buffers that XLA sets aside to evaluate one image, on this backend.

    A buffer is used again once its content is dead, so this is about the largest set of
    activations alive at once. Compiles the network; None if the backend does not tell.
    """
    x = jax.ShapeDtypeStruct((1, image_size, image_size, net.image_channels), jnp.float32)
    evaluate = jax.jit(lambda variables, x: net.apply(variables, x, train=False)[0])
    analysis = evaluate.lower(variables, x).compile().memory_analysis()
    return None if analysis is None else analysis.temp_size_in_bytes


def table(figures: dict) -> str:
    """The figures for people."""
    with_head, memory = figures["parameters_with_auxiliary"], figures["forward_memory_mb"]
    rows = [
        ("parameters", f"{figures['parameters']:,}"),
        ("  with auxiliary head", "too few pixels" if with_head is None else f"{with_head:,}"),
        ("multiply-adds", f"{figures['multiply_adds']:,}"),
        ("FLOPs, the paper's rule", f"{figures['flops']:,}"),
        ("forward memory", "unknown" if memory is None else f"{memory:,.1f} MB"),
    ]
    runs = itertools.groupby(enumerate(figures["parameters_per_cell"]), key=lambda pair: pair[1])
    for parameters, run in runs:
        first, *rest = (index for index, _ in run)
        cells = f"cells {first}-{rest[-1]}, each" if rest else f"cell {first}"
        rows.append((f"parameters of {cells}", f"{parameters:,}"))
    return "\n".join(
        [
            figures["name"] or figures["genotype"],
            f"{figures['net']} net, {figures['channels']} channels, {figures['cells']} cells, "
            f"{figures['classes']} classes, {figures['image_size']} pixels wide"
            + (", one-stage batch norms" if figures["one_stage"] else ""),
            "",
            *(f"{what:<32}{value:>16}" for what, value in rows),
            "",
            f"forward memory: {figures['forward_memory_meaning']}",
        ]
    )
