"""The cells of a network: where each stands, and a cell of a known genotype."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import Mode, init_stats
from istanas_jax.networks.kernels import fence
from istanas_jax.networks.stem_and_heads import STEMS
from istanas_jax.networks.variables import declare_stats, declare_weights, move_stats
from istanas_jax.space.connections import OTHER_ORDER, reduction_cells, stride_of
from istanas_jax.space.genotype import Cell as CellGenotype
from istanas_jax.space.layers import NormRegime
from istanas_jax.space.operations import AUXILIARY_SKIP, find_operation


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
    if channels % 2 and stem == "imagenet":
        raise ValueError(
            f"channels = {channels} must be even with the stem imagenet: the first cell halves them"
        )
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


class Preprocess(nn.Module):
    """Brings a cell's input to the cell's channels (and size)."""

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
    """An operation with its own weights."""

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

    The coefficients, if given, are in the order of a support, see `connections.OTHER_ORDER`.
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
            total, ranks = 0, range(len(node))[OTHER_ORDER]
            for k, (op, predecessor) in enumerate(node):
                stride = stride_of(predecessor, plan.reduction)
                run = Operation(op, plan.channels, stride, self.regime, name=operation_name(j, k))
                y = run(states[predecessor], mode)
                if paths is not None and not self._spared(op, stride):
                    y = paths[:, j, k, None, None, None].astype(y.dtype) * y
                if coefficients is not None and op != AUXILIARY_SKIP:
                    y = operations.weigh(coefficients[j, ranks[k]], y)
                total = total + y
            states.append(fence(total))
        return jnp.concatenate([states[i] for i in self.concat], -1)

    def _spared(self, op: str, stride: int) -> bool:
        """Whether drop-path spares the operation: identity, unless a batch norm follows it."""
        norms = operations.num_norms(op, stride, self.regime)
        return find_operation(op).is_identity(stride) and not norms


def operation_name(node: int, connection: int) -> str:
    return f"node{node}_connection{connection}"
