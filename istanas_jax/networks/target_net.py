"""The target net: a network of known cells, for retraining and wherever the support stands still.

With coefficients it is the static form of the super-net, see `supernet.static.select_variables`.
"""

from collections.abc import Iterator

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import Mode
from istanas_jax.networks.cells import Cell, CellPlan, operation_name, plan_cells
from istanas_jax.networks.stem_and_heads import (
    AuxiliaryHead,
    Classifier,
    Stem,
    head_layers,
    stem_layers,
)
from istanas_jax.networks.variables import init_variables
from istanas_jax.space.connections import auxiliary_cell, stride_of
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.layers import Layers
from istanas_jax.space.operations import find_operation


class TargetNet(nn.Module):
    """Stem, cells, classifier, and in training an auxiliary head.

    Attributes:
      genotype: the normal and the reduction cell.
      regime: which batch norms there are: "retrain" (two-stage), "one_stage" or "search".
      dtype: type of the activations; parameters and statistics are float32.
    """

    genotype: Genotype
    classes: int
    cells: int
    channels: int
    stem: str = "cifar"
    regime: str = "retrain"
    auxiliary: bool = False
    image_channels: int = 3
    dtype: str = "float32"

    def plans(self) -> list[CellPlan]:
        concat = (len(self.genotype.normal_concat), len(self.genotype.reduce_concat))
        return plan_cells(self.stem, self.cells, self.channels, concat)

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B H W Cin"],
        *,
        train: bool,
        coefficients: Float[Array, "cells nodes s"] | None = None,
        paths: Float[Array, "B cells nodes picks"] | None = None,
        axis_name: str | None = None,
    ) -> tuple[Float[Array, "B classes"], Float[Array, "B classes"] | None]:
        """Logits, and those of the auxiliary head (None in evaluation, or without a head).

        Args:
          x: normalised images.
          train: normalise by the batch, and move the running statistics.
          coefficients: weights of the connections, strongest first; 1 if None.
          paths: what connections are multiplied by for each image, see `draw_paths`; 1 if None.
          axis_name: pmapped axis over which batch statistics are shared, if any.
        """
        mode = Mode(train, axis_name)
        g, regime = self.genotype, operations.REGIMES[self.regime]
        stem = Stem(self.stem, self.channels, self.image_channels, name="stem")
        s0, s1 = stem(x.astype(self.dtype), mode)
        auxiliary = None
        for index, plan in enumerate(self.plans()):
            nodes, out = (
                (g.reduce, g.reduce_concat) if plan.reduction else (g.normal, g.normal_concat)
            )
            cell = Cell(plan, nodes, tuple(out), regime, name=cell_name(index))
            weights = None if coefficients is None else coefficients[int(plan.reduction)]
            factors = None if paths is None else paths[:, index]
            s0, s1 = s1, cell(s0, s1, weights, factors, mode)
            wanted = self.auxiliary and (train or self.is_initializing())
            if wanted and index == auxiliary_cell(self.cells):
                head = AuxiliaryHead(self.stem, self.classes, name="auxiliary")
                auxiliary = head(s1, mode)
        return Classifier(self.classes, name="classifier")(s1), auxiliary


def module_layers(net: TargetNet) -> Iterator[tuple[tuple[str, ...], Layers]]:
    """Path and layers of every module that has weights or batch norms, except classifiers."""
    regime = operations.REGIMES[net.regime]
    first, second = stem_layers(net.stem, net.channels)
    yield ("stem",), first + second
    for index, plan in enumerate(net.plans()):
        cell = cell_name(index)
        for n, halve in enumerate((plan.halve, False)):
            yield (cell, f"pre{n}"), operations.preprocess_layers(plan.channels, halve)
        for j, node in enumerate(net.genotype.reduce if plan.reduction else net.genotype.normal):
            for k, (op, predecessor) in enumerate(node):
                stride = stride_of(predecessor, plan.reduction)
                yield (cell, operation_name(j, k)), find_operation(op).layers_in(stride, regime)
    if net.auxiliary:
        yield ("auxiliary",), head_layers(net.stem)


def draw_paths(
    net: TargetNet, key: jax.Array, rate: Float[Array, ""], batch: int
) -> Float[Array, "B cells nodes picks"]:
    """Draw the factors of drop-path at once: 0 with probability `rate`, else 1 / (1 - rate)."""
    cells = (net.genotype.normal, net.genotype.reduce)
    picks = max(len(node) for cell in cells for node in cell)
    shape = (batch, net.cells, max(map(len, cells)), picks)
    kept = jax.random.uniform(key, shape) >= rate
    return kept / (1 - rate)


def cell_name(index: int) -> str:
    return f"cell_{index:02}"


def init_target(net: TargetNet, key: jax.Array, image_size: int) -> dict:
    """Initialise variables; only the shape of the images matters."""
    x = jnp.zeros((1, image_size, image_size, net.image_channels))
    return init_variables(net, key, x, train=False)
