"""What the super-net and the target nets are built from: stem, cells, heads, and their geometry."""

import itertools
import math
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import Mode, batch_norm, init_stats, update_stats
from istanas_jax.networks.kernels import fence
from istanas_jax.networks.operations import NormRegime, Weights
from istanas_jax.space.connections import NUM_INPUTS, reduction_cells
from istanas_jax.space.genotype import Cell as CellGenotype

STEMS = ("cifar", "imagenet")


class CellPlan(NamedTuple):
    """Where a cell stands in a network: its channels, and what its two inputs look like."""

    channels: int
    reduction: bool
    halve: bool  # the first input is twice as large as the second
    in0: int
    in1: int


def plan_cells(stem: str, num_cells: int, channels: int, concat: tuple[int, int]) -> list[CellPlan]:
    """The cells of a network; `concat` counts the nodes in the output of each cell type."""
    if stem not in STEMS:
        raise ValueError(f"unknown stem {stem!r}, there are: {', '.join(STEMS)}")
    if channels % 2:
        raise ValueError(f"channels = {channels} must be even: a factorised reduction halves them")
    reductions = reduction_cells(num_cells)
    in0 = in1 = 3 * channels if stem == "cifar" else channels
    halve = stem == "imagenet"
    plans = []
    for index in range(num_cells):
        reduction = index in reductions
        channels *= 2 if reduction else 1
        plans.append(CellPlan(channels, reduction, halve, in0, in1))
        in0, in1, halve = in1, concat[reduction] * channels, reduction
    return plans


def init_variables(net: nn.Module, key: jax.Array, *args, **kwargs) -> dict:
    """What `net.init` gives, drawn in one go.

    `net.init` draws each weight from a key of its own, and XLA's CPU backend takes about half a
    second to compile each draw. Here all come from one long vector, cut by numpy: jax would compile
    each cut.
    """
    shapes = jax.eval_shape(lambda: net.init(key, *args, **kwargs))
    leaves = jax.tree.leaves_with_path(shapes["params"])
    shape_of = {path: leaf.shape for path, leaf in leaves}
    drawn = jax.random.uniform(
        key, (sum(leaf.size for _, leaf in leaves),), minval=-1.0, maxval=1.0
    )
    if not isinstance(drawn, jax.core.Tracer):
        drawn = np.asarray(drawn)

    def param(path, leaf, start):
        name = path[-1].key
        if name.startswith(("scale", "shift")):
            return np.full(leaf.shape, name.startswith("scale"), np.float32)
        values = drawn[start : start + leaf.size].reshape(leaf.shape)
        # A bias is drawn as the kernel of its linear layer.
        kernel = (*path[:-1], jax.tree_util.DictKey("kernel")) if name == "bias" else path
        return values * (1 / np.float32(math.sqrt(operations.fan_in(name, shape_of[kernel]))))

    starts = itertools.accumulate((leaf.size for _, leaf in leaves), initial=0)
    params = [param(path, leaf, start) for (path, leaf), start in zip(leaves, starts, strict=False)]
    stats = [
        np.broadcast_to(np.float32([[0], [1]]), leaf.shape)
        for leaf in jax.tree.leaves(shapes["batch_stats"])
    ]
    fresh = {"params": params, "batch_stats": stats}
    return {
        kind: jax.tree.unflatten(jax.tree.structure(shapes[kind]), map(jnp.asarray, values))
        for kind, values in fresh.items()
    }


def declare_weights(
    module: nn.Module, shapes: dict[str, tuple[int, ...]], stack: tuple[int, ...] = ()
) -> Weights:
    """The weights of these names and shapes as parameters of the module, perhaps stacked."""
    return {
        name: module.param(
            name, lambda key, n=name, s=shape: operations.init_weight(key, n, stack + s)
        )
        for name, shape in shapes.items()
    }


def declare_stats(module: nn.Module, norms: int, channels: int) -> nn.Variable:
    return module.variable("batch_stats", "stats", init_stats, norms, channels)


def move_stats(module: nn.Module, stats: nn.Variable, batch: Array, mode: Mode) -> None:
    if mode.train and not module.is_initializing():
        stats.value = update_stats(stats.value, batch)


class Preprocess(nn.Module):
    """A cell's input brought to its channels (and size)."""

    channels_in: int
    channels: int
    halve: bool
    regime: NormRegime

    @nn.compact
    def __call__(self, x: Float[Array, "B H W Cin"], mode: Mode) -> Float[Array, "B Ho Wo C"]:
        shapes = operations.preprocess_shapes(
            self.channels_in, self.channels, self.halve, self.regime
        )
        weights = declare_weights(self, shapes)
        stats = declare_stats(self, 1, self.channels)
        y, batch = operations.preprocess(x, weights, stats.value, mode=mode)
        move_stats(self, stats, batch, mode)
        return y


class Operation(nn.Module):
    """One of the nine operations with its own weights."""

    op: str
    channels: int
    stride: int
    regime: NormRegime

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"], mode: Mode) -> Float[Array, "B Ho Wo C"]:
        weights = declare_weights(
            self, operations.weight_shapes(self.op, self.channels, self.stride, self.regime)
        )
        norms = operations.num_norms(self.op, self.stride, self.regime)
        stats = declare_stats(self, norms, self.channels) if norms else None
        before = stats.value if norms else init_stats(0, self.channels)
        y, batch = operations.apply_op(self.op, x, weights, before, stride=self.stride, mode=mode)
        if norms:
            move_stats(self, stats, batch, mode)
        return y


class Cell(nn.Module):
    """A cell of a known genotype: only its own operations exist.

    The coefficients, if given, are in the order of a support: of a node's connections the
    strongest comes first, whereas a genotype lists the weakest first.
    """

    plan: CellPlan
    nodes: CellGenotype
    concat: tuple[int, ...]
    regime: NormRegime

    @nn.compact
    def __call__(
        self,
        s0: Float[Array, "B H W C0"],
        s1: Float[Array, "B H W C1"],
        coefficients: Float[Array, "nodes s"] | None,
        paths: Float[Array, "B nodes picks"] | None,
        mode: Mode,
    ) -> Float[Array, "B Ho Wo Cout"]:
        plan = self.plan
        states = [
            Preprocess(plan.in0, plan.channels, plan.halve, self.regime, name="pre0")(s0, mode),
            Preprocess(plan.in1, plan.channels, False, self.regime, name="pre1")(s1, mode),
        ]
        for j, node in enumerate(self.nodes):
            total = 0
            for k, (op, predecessor) in enumerate(node):
                stride = 2 if plan.reduction and predecessor < NUM_INPUTS else 1
                run = Operation(op, plan.channels, stride, self.regime, name=operation_name(j, k))
                y = run(states[predecessor], mode)
                if paths is not None and not self._spared(op, stride):
                    y = paths[:, j, k, None, None, None].astype(y.dtype) * y
                if coefficients is not None:
                    y = coefficients[j, len(node) - 1 - k].astype(y.dtype) * y
                total = total + y
            states.append(fence(total))
        return jnp.concatenate([states[i] for i in self.concat], -1)

    def _spared(self, op: str, stride: int) -> bool:
        """Identity is never dropped, unless it ends in a batch norm like everything else."""
        return op == "skip_connect" and stride == 1 and not self.regime.identity


def operation_name(node: int, connection: int) -> str:
    return f"node{node}_connection{connection}"


class Stem(nn.Module):
    """From the image to the two inputs of the first cell; its batch norms always have scales."""

    kind: str
    channels: int
    image_channels: int

    @nn.compact
    def __call__(self, x: Float[Array, "B H W Cin"], mode: Mode):
        c = self.channels
        if self.kind == "cifar":
            s = self._conv_norm(x, 0, 3 * c, 1, mode)
            return s, s
        x = operations.relu(self._conv_norm(x, 0, c // 2, 2, mode))
        s0 = self._conv_norm(x, 1, c, 2, mode)
        return s0, self._conv_norm(operations.relu(s0), 2, c, 2, mode)

    def _conv_norm(self, x, n, channels, stride, mode):
        shapes = {f"conv{n}": (3, 3, x.shape[-1], channels)} | operations.norm_shapes(channels, n)
        weights = declare_weights(self, shapes)
        stats = self.variable("batch_stats", f"stats{n}", init_stats, 1, channels)
        x = operations.conv(x, weights[f"conv{n}"], strides=(stride, stride))
        scale, shift = weights[f"scale{n}"], weights[f"shift{n}"]
        y, batch = batch_norm(x, scale, shift, stats.value[0], mode)
        move_stats(self, stats, batch[None], mode)
        return y


class AuxiliaryHead(nn.Module):
    """A second classifier behind the last reduction cell, for training only."""

    kind: str
    classes: int

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"], mode: Mode) -> Float[Array, "B classes"]:
        stride = 3 if self.kind == "cifar" else 2
        if min(x.shape[1:3]) < 5 + stride:  # 2x2 pixels must be left for the second convolution
            raise ValueError(
                f"the auxiliary head needs {5 + stride}x{5 + stride} pixels, but only {x.shape[1]}x"
                f"{x.shape[2]} are left of the image there; set auxiliary_weight to 0"
            )
        x = nn.avg_pool(operations.relu(x), (5, 5), (stride, stride))
        x = self._conv_norm(x, 0, (1, 1, x.shape[-1], 128), True, mode)
        x = self._conv_norm(x, 1, (2, 2, 128, 768), self.kind == "cifar", mode)
        return Classifier(self.classes, name="classifier")(x)

    def _conv_norm(self, x, n, shape, norm, mode):
        shapes = {f"conv{n}": shape} | (operations.norm_shapes(shape[-1], n) if norm else {})
        weights = declare_weights(self, shapes)
        x = operations.conv(x, weights[f"conv{n}"], padding=0)
        if norm:
            stats = self.variable("batch_stats", f"stats{n}", init_stats, 1, shape[-1])
            scale, shift = weights[f"scale{n}"], weights[f"shift{n}"]
            x, batch = batch_norm(x, scale, shift, stats.value[0], mode)
            move_stats(self, stats, batch[None], mode)
        return operations.relu(x)


class Classifier(nn.Module):
    """Mean over the pixels and a linear layer, in float32."""

    classes: int

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B classes"]:
        x = jnp.mean(x.astype(jnp.float32), (1, 2))
        bound = 1 / math.sqrt(x.shape[-1])

        def uniform(key, shape, dtype=jnp.float32):
            return jax.random.uniform(key, shape, dtype, -bound, bound)

        return nn.Dense(self.classes, kernel_init=uniform, bias_init=uniform, name="linear")(x)
