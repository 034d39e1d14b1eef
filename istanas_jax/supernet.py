"""The super-net: all candidate connections as variables, only those in the support as work.

Three ways to run over the same variables, with equal outputs and gradients:

- dynamic: support and coefficients are arrays and may change at every step; nothing is compiled
  again (`slots`);
- static: the support is known when tracing: `select_variables` picks the active weights, and a
  `TargetNet` with coefficients runs them;
- dense: all candidates run and are multiplied by a table that is 0 outside the support. It costs
  what DARTS costs, and is the answer the others are tested against.
"""

import itertools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from istanas_jax import ops
from istanas_jax.batch_norm import Mode, init_stats, update_stats
from istanas_jax.cells import (
    AuxiliaryHead,
    CellPlan,
    Classifier,
    Stem,
    declare_weights,
    plan_cells,
)
from istanas_jax.ops import MAX_NORMS, Weights
from istanas_jax.search_space import NUM_INPUTS, NUM_OPS, OPERATIONS, auxiliary_cell, num_edges
from istanas_jax.slots import CellSpec, make_slots, pack_weights, run_slots
from istanas_jax.target_net import cell_name

GROUP_NAMES = {False: ("edges",), True: ("edges_from_inputs", "edges_from_nodes")}


class CellVariables(NamedTuple):
    """The values of a cell's variables; cells of equal shapes can be stacked and scanned over."""

    pre0: Weights
    pre1: Weights
    groups: tuple[dict[str, Weights], ...]  # per group of edges and operation, stacked over edges
    pre_stats: Float[Array, "2 norms=1 2 C"]
    stats: Float[Array, "edges ops norms 2 C"]


class _EdgeGroup(nn.Module):
    """Weights of all operations on a group of edges."""

    spec: CellSpec
    group: int

    @nn.compact
    def __call__(self) -> dict[str, Weights]:
        stride, size = self.spec.strides[self.group], len(self.spec.groups[self.group])
        return {
            op: _Stacked(tuple(shapes.items()), (size,), name=op)()
            for op in OPERATIONS
            if (shapes := self.spec.shapes(op, stride))
        }


class _Stacked(nn.Module):
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    stack: tuple[int, ...] = ()

    @nn.compact
    def __call__(self) -> Weights:
        return declare_weights(self, dict(self.shapes), self.stack)


class SuperCell(nn.Module):
    """Owns the variables of a cell with all candidates; `run_cell` computes with them."""

    plan: CellPlan
    spec: CellSpec

    def setup(self):
        plan, spec = self.plan, self.spec
        for name, channels, halve in (
            ("pre0", plan.in0, plan.halve),
            ("pre1", plan.in1, False),
        ):
            shapes = ops.preprocess_shapes(channels, plan.channels, halve, spec.regime)
            setattr(self, name, _Stacked(tuple(shapes.items())))
        for group, name in enumerate(GROUP_NAMES[plan.reduction]):
            setattr(self, name, _EdgeGroup(spec, group))
        edges, c = num_edges(spec.num_nodes), plan.channels
        self.pre_moments = self.variable(
            "batch_stats", "pre_stats", lambda: jnp.stack([init_stats(1, c)] * 2)
        )
        self.moments = self.variable(
            "batch_stats",
            "stats",
            lambda: jnp.broadcast_to(
                init_stats(MAX_NORMS, c)[None, None], (edges, NUM_OPS, MAX_NORMS, 2, c)
            ),
        )

    def __call__(self) -> CellVariables:
        groups = tuple(getattr(self, name)() for name in GROUP_NAMES[self.plan.reduction])
        return CellVariables(
            self.pre0(), self.pre1(), groups, self.pre_moments.value, self.moments.value
        )

    def move_stats(self, pre_stats: Array, stats: Array) -> None:
        self.pre_moments.value, self.moments.value = pre_stats, stats


class SuperNet(nn.Module):
    """The network in search.

    Attributes:
      regime: "search" (two-stage: batch norms without scale and shift) or "one_stage".
      dtype: of the activations; parameters and statistics are float32.
    """

    classes: int
    cells: int
    channels: int
    num_nodes: int = 4
    s: int = 2
    stem: str = "cifar"
    regime: str = "search"
    auxiliary: bool = False
    image_channels: int = 3
    dtype: str = "float32"

    def spec(self, plan: CellPlan) -> CellSpec:
        regime = ops.REGIMES[self.regime]
        return CellSpec(plan.channels, plan.reduction, self.num_nodes, self.s, regime)

    def plans(self) -> list[CellPlan]:
        concat = (self.num_nodes, self.num_nodes)
        return plan_cells(self.stem, self.cells, self.channels, concat)

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B H W Cin"],
        support: Int[Array, "types nodes s"],
        coefficients: Float[Array, "types nodes s"],
        *,
        train: bool,
        dense: bool = False,
        axis_name: str | None = None,
    ) -> tuple[Float[Array, "B classes"], Float[Array, "B classes"] | None]:
        """Logits, and those of the auxiliary head (None in evaluation, or without a head).

        Args:
          x: normalised images.
          support: active connections of each node as flat indices, for both cell types.
          coefficients: their weights.
          train: normalise by the batch, and move the running statistics.
          dense: run all candidates, times 0 where they are not in the support.
          axis_name: pmapped axis over which batch statistics are shared, if any.
        """
        mode = Mode(train, axis_name)
        stem = Stem(self.stem, self.channels, self.image_channels, name="stem")
        s0, s1 = stem(x.astype(self.dtype), mode)
        plans = self.plans()
        cells = [
            SuperCell(plan, self.spec(plan), name=cell_name(i)) for i, plan in enumerate(plans)
        ]
        auxiliary = None
        for stretch in _stretches(plans):
            plan = plans[stretch[0]]
            spec, kind = self.spec(plan), int(plan.reduction)
            choice = (support[kind], coefficients[kind])
            run = run_cell_dense if dense else run_cell
            variables = [cells[i]() for i in stretch]
            s0, s1, moved = _run_stretch(run, variables, s0, s1, choice, spec, mode)
            if train and not self.is_initializing():
                for i, stats in zip(stretch, moved, strict=True):
                    cells[i].move_stats(*stats)
            wanted = self.auxiliary and (train or self.is_initializing())
            if wanted and auxiliary_cell(self.cells) in stretch:
                head = AuxiliaryHead(self.stem, self.classes, name="auxiliary")
                auxiliary = head(s1, mode)
        return Classifier(self.classes, name="classifier")(s1), auxiliary


def _stretches(plans: list[CellPlan]) -> list[list[int]]:
    """Runs of neighbouring cells of one shape: each is compiled once, whatever its length.

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


def _preprocess(cell: CellVariables, s0, s1, mode: Mode):
    x0, stats0 = ops.preprocess(s0, cell.pre0, cell.pre_stats[0], mode=mode)
    x1, stats1 = ops.preprocess(s1, cell.pre1, cell.pre_stats[1], mode=mode)
    return x0, x1, update_stats(cell.pre_stats, jnp.stack([stats0, stats1]))


def _output(nodes: Float[Array, "nodes B H W C"]) -> Float[Array, "B H W nodes*C"]:
    return jnp.moveaxis(nodes, 0, 3).reshape(*nodes.shape[1:4], -1)


def run_cell(cell: CellVariables, s0, s1, support, coefficients, *, spec: CellSpec, mode: Mode):
    """Dynamic: the cell's output, and its statistics after it."""
    x0, x1, pre_stats = _preprocess(cell, s0, s1, mode)
    slots = make_slots(support, coefficients, spec)
    vectors = pack_weights(cell.groups, slots, spec)
    before = jnp.asarray(cell.stats)[slots.edge, slots.op]
    nodes, batch = run_slots(x0, x1, vectors, slots, before, spec=spec, mode=mode)
    after = jnp.asarray(cell.stats).at[slots.edge, slots.op].set(update_stats(before, batch))
    return _output(nodes), (pre_stats, after)


def run_cell_dense(
    cell: CellVariables, s0, s1, support, coefficients, *, spec: CellSpec, mode: Mode
):
    """Dense: the same from all candidates; statistics move where the support is."""
    slots = make_slots(support, coefficients, spec)
    table = jnp.zeros(cell.stats.shape[:2]).at[slots.edge, slots.op].set(slots.coefficient)
    active = jnp.zeros(cell.stats.shape[:2], bool).at[slots.edge, slots.op].set(True)
    x0, x1, pre_stats = _preprocess(cell, s0, s1, mode)
    nodes, batch = mix_all(cell, x0, x1, table, spec=spec, mode=mode)
    moved = update_stats(cell.stats, batch)
    after = jnp.where(active[:, :, None, None, None], moved, cell.stats)
    return _output(jnp.stack(nodes)), (pre_stats, after)


def mix_all(
    cell: CellVariables,
    x0: Float[Array, "B H W C"],
    x1: Float[Array, "B H W C"],
    table: Float[Array, "edges ops"],
    *,
    spec: CellSpec,
    mode: Mode,
):
    """Every node as the sum of all candidates, each times its entry in the table."""
    states, batch = [x0, x1], []
    edge, place = 0, [0] * len(spec.strides)
    for _ in range(spec.num_nodes):
        total = 0
        parts = [states] if not spec.reduction else [states[:NUM_INPUTS], states[NUM_INPUTS:]]
        for group, (stride, sources) in enumerate(zip(spec.strides, parts, strict=True)):
            if not sources:
                continue
            count = len(sources)
            first, place[group] = place[group], place[group] + count
            weights = jax.tree.map(
                lambda w, first=first, count=count: w[first : first + count], cell.groups[group]
            )
            rows = slice(edge, edge + count)
            inputs = (jnp.stack(sources), weights, table[rows], cell.stats[rows])

            def add_edge(total, inputs, stride=stride):
                x, weights, row, stats = inputs
                moments = []
                for n, op in enumerate(OPERATIONS):
                    norms = ops.num_norms(op, stride, spec.regime)
                    y, seen = ops.apply_op(
                        op, x, weights.get(op, {}), stats[n, :norms], stride=stride, mode=mode
                    )
                    total = total + row[n].astype(y.dtype) * y
                    moments.append(jnp.concatenate([seen, stats[n, norms:]]))
                return total, jnp.stack(moments)

            b, h, w, c = x0.shape
            shape = (b, -(-h // 2), -(-w // 2), c) if spec.reduction else x0.shape
            part, seen = lax.scan(add_edge, jnp.zeros(shape, x0.dtype), inputs)
            total = total + part
            batch.append(seen)
            edge += count
        states.append(total)
    return states[NUM_INPUTS:], jnp.concatenate(batch)


def keep_inactive(
    net: SuperNet,
    support: Int[Array, "types nodes s"],
    before,
    after,
    *,
    frozen: Bool[Array, "types nodes"] | None = None,
):
    """`after` where connections are active, `before` elsewhere: only W_(S) is ever updated.

    Both are trees in which, somewhere, parameters of the net are found by their names: parameters,
    momentum, or a whole optimiser state.

    Args:
      frozen: if given, scale and shift of a node's operations are updated only once it is frozen
        (Algorithm 2, lines 6 and 7).
    """
    weights, norms = {}, {}
    for reduction in (False, True):
        spec = CellSpec(net.channels, reduction, net.num_nodes, net.s, ops.REGIMES[net.regime])
        slots = make_slots(support[int(reduction)], jnp.zeros(support.shape[1:]), spec)
        for group, (name, edges) in enumerate(
            zip(GROUP_NAMES[reduction], spec.groups, strict=True)
        ):
            at = jnp.where(slots.group == group, slots.place, len(edges))
            table = jnp.zeros((len(edges), NUM_OPS), bool)
            weights[name] = norms[name] = table.at[at, slots.op].set(True, mode="drop")
            if frozen is not None:
                nodes = jnp.array([node for node, _ in edges])
                norms[name] = weights[name] & frozen[int(reduction)][nodes][:, None]

    def choose(path, old, new):
        names = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
        tables = norms if names and names[-1].startswith(("scale", "shift")) else weights
        for name, op in itertools.pairwise(names):
            if name in tables:
                mask = tables[name][:, OPERATIONS.index(op)]
                return jnp.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)
        return new

    return jax.tree.map_with_path(choose, before, after)
