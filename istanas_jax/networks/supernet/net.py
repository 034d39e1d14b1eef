"""The super-net: all candidate connections have variables, only those in the support run.

Three ways to run over the same variables, with equal outputs and gradients:

- dynamic: support and coefficients are arrays and may change at every step; nothing is compiled
  again (`dynamic`);
- static: the support is known when tracing: `static.select_variables` picks the active weights, and
  a `TargetNet` with coefficients runs them;
- dense: all candidates run and are multiplied by a table (`dense`), here one that is 0 outside the
  support. It costs what DARTS costs, and is the answer the others are tested against.
"""

import itertools
from dataclasses import replace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import Mode, update_stats
from istanas_jax.networks.cells import CellPlan, plan_cells
from istanas_jax.networks.kernels import fence
from istanas_jax.networks.stem_and_heads import AuxiliaryHead, Classifier, Stem
from istanas_jax.networks.supernet.cell_variables import (
    GROUP_NAMES,
    CellSpec,
    CellVariables,
    SuperCell,
    output,
    preprocess,
)
from istanas_jax.networks.supernet.dense import Mixture, run_cell_dense, run_cell_mixed
from istanas_jax.networks.supernet.dynamic import make_slots, pack_weights, run_slots
from istanas_jax.networks.target_net import cell_name
from istanas_jax.space.connections import auxiliary_cell
from istanas_jax.space.operations import AUXILIARY_SKIP
from istanas_jax.space.spaces import DARTS, Space


class SuperNet(nn.Module):
    """The network in search.

    Attributes:
      space: what is searched.
      regime: "search" (two-stage: batch norms without scale and shift) or "one_stage".
      partial: operations see one channel in `partial`, the others pass by (PC-DARTS).
      candidates: numbers of the operations that each cell type and edge has left; None: all.
      recompute: with a mixture, operations run again in the backward pass, to save memory.
      shrink: images are averaged over squares of this side before the stem sees them.
      shared: an operation has one set of weights for all edges of a cell that have one stride.
      dtype: type of the activations; parameters and statistics are float32.
    """

    classes: int
    cells: int
    channels: int
    space: Space = DARTS
    stem: str = "cifar"
    regime: str = "search"
    auxiliary: bool = False
    image_channels: int = 3
    dtype: str = "float32"
    partial: int = 1
    candidates: tuple[tuple[tuple[int, ...], ...], ...] | None = None
    recompute: bool = False
    shared: bool = False
    shrink: int = 1

    def spec(self, plan: CellPlan) -> CellSpec:
        candidates = self.candidates or self.space.numbers
        if self.space.auxiliary:
            runs_always = self.space.operations.index(AUXILIARY_SKIP)
            candidates = tuple(tuple((*e, runs_always) for e in edges) for edges in candidates)
            if all(len(e) == self.space.num_ops for edges in candidates for e in edges):
                candidates = None  # equal edges are compiled once
        return CellSpec(
            plan.channels,
            plan.reduction,
            self.space,
            operations.REGIMES[self.regime],
            self.partial,
            candidates and candidates[plan.reduction],
            self.recompute,
            self.shared,
        )

    def plans(self) -> list[CellPlan]:
        concat = (self.space.nodes, self.space.nodes)
        return plan_cells(self.stem, self.cells, self.channels, concat)

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B H W Cin"],
        support: Int[Array, "types nodes s"] | None = None,
        coefficients: Float[Array, "types nodes s"] | None = None,
        *,
        train: bool,
        dense: bool = False,
        mixture: Mixture | None = None,
        axis_name: str | None = None,
    ) -> tuple[Float[Array, "B classes"], Float[Array, "B classes"] | None]:
        """Logits, and those of the auxiliary head (None in evaluation, or without a head).

        Args:
          x: normalised images.
          support: active connections of each node as flat indices, for both cell types.
          coefficients: their weights.
          train: normalise by the batch, and move the running statistics.
          dense: run all candidates, times 0 where they are not in the support.
          mixture: run all candidates, times what it says; instead of support and coefficients.
          axis_name: pmapped axis over which batch statistics are shared, if any.
        """
        mode = Mode(train, axis_name)
        if self.space.uneven and coefficients is not None:
            coefficients = jnp.where(np.array(self.space.own_columns), coefficients, 0)
        if self.space.auxiliary and support is not None:
            support = with_auxiliary(support, self.space)
            coefficients = jnp.concatenate([coefficients, jnp.ones_like(coefficients)], -1)
        stem = Stem(self.stem, self.channels, self.image_channels, name="stem")
        s0, s1 = stem(shrunk(x, self.shrink).astype(self.dtype), mode)
        plans = self.plans()
        cells = [
            SuperCell(plan, self.spec(plan), name=cell_name(i)) for i, plan in enumerate(plans)
        ]
        auxiliary = None
        for stretch in _stretches(plans):
            plan = plans[stretch[0]]
            spec, cell_type = self.spec(plan), int(plan.reduction)
            variables = [cells[i]() for i in stretch]
            if mixture is not None:
                run, choice = run_cell_mixed, (mixture.of_type(cell_type),)
                variables = list(zip(variables, stretch, strict=True))  # numbered
            else:
                run = run_cell_dense if dense else run_cell
                choice = (support[cell_type], coefficients[cell_type])
                spec = replace(spec, slots=support.shape[-1])
            s0, s1, moved = _run_stretch(run, variables, s0, s1, choice, spec, mode)
            if train and not self.is_initializing():
                for i, stats in zip(stretch, moved, strict=True):
                    cells[i].move_stats(*stats)
            wanted = self.auxiliary and (train or self.is_initializing())
            if wanted and auxiliary_cell(self.cells) in stretch:
                head = AuxiliaryHead(self.stem, self.classes, name="auxiliary")
                auxiliary = head(s1, mode)
        return Classifier(self.classes, name="classifier")(s1), auxiliary


def shrunk(x: Float[Array, "B H W C"], side: int) -> Float[Array, "B H/side W/side C"]:
    """Means over squares of `side` pixels."""
    if side == 1:
        return x
    batch, height, width, channels = x.shape
    squares = x.reshape(batch, height // side, side, width // side, side, channels)
    return squares.mean((2, 4))


def with_auxiliary(
    support: Int[Array, "types nodes s"], space: Space
) -> Int[Array, "types nodes 2*s"]:
    """The connections of the support, then the skip-connections beside them."""
    return jnp.concatenate([support, space.beside(jnp.asarray(support))], -1)


def _stretches(plans: list[CellPlan]) -> list[list[int]]:
    """Group neighbouring cells of one shape: each group is compiled once, whatever its length.

    The auxiliary head follows a reduction cell, and those stand alone.
    """
    stretches: list[list[int]] = []
    for index, plan in enumerate(plans):
        if index and plan == plans[index - 1] and not plan.reduction:
            stretches[-1].append(index)
        else:
            stretches.append([index])
    return stretches


def _run_stretch(run, variables, s0, s1, choice, spec, mode):
    if len(variables) == 1:
        out, moved = run(variables[0], s0, s1, *choice, spec=spec, mode=mode)
        return s1, out, [moved]

    def body(carry, cell):
        s0, s1 = carry
        out, moved = run(cell, s0, s1, *choice, spec=spec, mode=mode)
        return (s1, out), moved

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *variables)
    (s0, s1), moved = lax.scan(body, (s0, s1), stacked)
    return s0, s1, [jax.tree.map(lambda x, i=i: x[i], moved) for i in range(len(variables))]


def run_cell(cell: CellVariables, s0, s1, support, coefficients, *, spec: CellSpec, mode: Mode):
    """Run a cell dynamically; return its output and its updated statistics."""
    x0, x1, pre_stats = preprocess(cell, s0, s1, mode)
    slots = make_slots(support, coefficients, spec)
    vectors = pack_weights(cell.groups, slots, spec)
    before = jnp.asarray(cell.stats)[slots.edge, slots.op]
    nodes, batch = run_slots(x0, x1, vectors, slots, before, spec=spec, mode=mode)
    after = jnp.asarray(cell.stats).at[slots.edge, slots.op].set(update_stats(before, batch))
    return output(nodes), (pre_stats, after)


def keep_inactive(
    net: SuperNet,
    support: Int[Array, "types nodes s"],
    before,
    after,
    *,
    frozen: Bool[Array, "types nodes"] | None = None,
):
    """Take `after` for active connections and `before` for others: only W_(S) is ever updated.

    Both are trees in which, somewhere, parameters of the net are found by their names: parameters,
    momentum, or a whole optimiser state.

    Args:
      frozen: if given, scale and shift of a node's operations are updated only once it is frozen
        (Algorithm 2, lines 6 and 7).
    """
    if net.space.auxiliary:
        support = with_auxiliary(support, net.space)
    weights, norms = {}, {}
    for reduction in (False, True):
        regime = operations.REGIMES[net.regime]
        channels = net.channels * (1 + reduction)
        spec = CellSpec(channels, reduction, net.space, regime, shared=net.shared)
        slots = make_slots(support[int(reduction)], jnp.zeros(support.shape[1:]), spec)
        for group, (name, edges) in enumerate(
            zip(GROUP_NAMES[reduction], spec.groups, strict=True)
        ):
            sets = spec.num_sets(group)
            at = jnp.where(slots.group == group, slots.place, sets)
            table = jnp.zeros((sets, net.space.num_ops), bool)
            active = table.at[at, slots.op].set(True, mode="drop")
            weights[name] = norms[name] = _columns(active)
            if frozen is not None and not net.shared:
                nodes = jnp.array([node for node, _ in edges])
                norms[name] = _columns(active & frozen[int(reduction)][nodes][:, None])

    def choose(path, old, new):
        names = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
        tables = norms if names and names[-1].startswith(("scale", "shift")) else weights
        for name, op in itertools.pairwise(names):
            if name in tables:
                mask = tables[name][net.space.operations.index(op)]
                return jnp.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)
        return new

    return jax.tree.map_with_path(choose, before, after)


def _columns(table: Bool[Array, "sets ops"]) -> list[Bool[Array, " sets"]]:
    # Stored apart, so that weights of one shape are updated by one kernel, whatever the operation.
    return [fence(table[:, op]) for op in range(table.shape[1])]
