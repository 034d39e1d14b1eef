"""How long a target net takes to classify images here: measured, or predicted from a table.

The table has the time of each operation alone at each shape of the net. A net's operations may
run beside each other or be compiled into one another, so that their times do not just add up: a
few whole nets are timed as well, and a line through them turns sums of the table into predictions,

    latency = base + factor * (sum over all connections of all cells).

The base is what all nets have: stem, preprocessing, classifier, the call. The line goes through
the net of the fastest candidates, that of the slowest, and the one that is given. All this is
JSON, which a run keeps, so that it goes on with the same numbers.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from istanas_jax.devices import timing
from istanas_jax.networks.counting import cell_places
from istanas_jax.networks.operation_times import (
    OperationShape,
    alone,
    does_nothing,
    edge_shape,
    edge_shapes,
)
from istanas_jax.networks.operations import REGIMES
from istanas_jax.networks.target_net import TargetNet, init_target
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.search_space import Space

LEAST_FACTOR = 0.05  # a line that falls is noise: whatever runs takes time
Single = list[list[np.ndarray]]  # per cell type and node, of each candidate


class Latencies(NamedTuple):
    """What each connection of a target net adds to its latency, in milliseconds."""

    base: float
    single: Single
    space: Space

    def of(self, genotype: Genotype) -> float:
        """The latency of a net of these cells."""
        return self.base + _total(self.single, genotype.supports(self.space))


def measure(
    net: TargetNet,
    image_size: int,
    batch: int,
    *,
    space: Space,
    seconds: float | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict:
    """Measure what predicts the latency of target nets of this size; for JSON.

    Args:
      net: the target net, with any genotype.
      seconds: how long each program is timed, see `timing.fastest_of_each`.
    """
    shapes = sorted(edge_shapes(net, image_size, space.nodes))
    say(f"latency: timing {space.num_ops} operations at {len(shapes)} shapes, and three networks")
    rows = _operation_rows(shapes, net, batch, space, seconds)
    measured = {"batch": batch, "device": jax.devices()[0].device_kind, "operations": rows}
    table = _connection_times(measured, net, image_size, space)
    supports = [_extreme(table, space, sign) for sign in (1, -1)]
    supports.append(net.genotype.supports(space))
    sums = [_total(table, support) for support in supports]
    nets = [net.clone(genotype=Genotype.from_supports(*each, space)) for each in supports]
    times = nets_ms(nets, image_size, batch, seconds=seconds)
    base, factor = _line(np.array(sums), np.array(times))
    nets = [{"sum_ms": x, "ms": y} for x, y in zip(sums, times, strict=True)]
    return measured | {"nets": nets, "base_ms": base, "factor": factor}


def latencies(measured: dict, net: TargetNet, image_size: int, space: Space) -> Latencies:
    """What `measure` found, laid out for the connections of a target net of the same size."""
    table = _connection_times(measured, net, image_size, space)
    single = [[measured["factor"] * node for node in cell] for cell in table]
    return Latencies(measured["base_ms"], single, space)


def net_ms(net: TargetNet, image_size: int, batch: int, *, seconds: float | None = None) -> float:
    """Milliseconds from normalised images to logits, compiled, in evaluation."""
    return nets_ms([net], image_size, batch, seconds=seconds)[0]


def nets_ms(
    nets: Sequence[TargetNet], image_size: int, batch: int, *, seconds: float | None = None
) -> list[float]:
    """Those of several networks, which are timed in turn."""
    calls = [_classify(net, image_size, batch) for net in nets]
    return [1000 * time for time in timing.fastest_of_each(calls, seconds=seconds)]


def _classify(net: TargetNet, image_size: int, batch: int) -> Callable[[], jax.Array]:
    net = net.clone(auxiliary=False)
    variables = jax.jit(lambda: init_target(net, jax.random.key(0), image_size))()
    x = jnp.zeros((batch, image_size, image_size, net.image_channels))
    program = jax.jit(lambda variables, x: net.apply(variables, x, train=False)[0])
    return lambda: program(variables, x)


def _operation_rows(
    shapes: Sequence[OperationShape],
    net: TargetNet,
    batch: int,
    space: Space,
    seconds: float | None,
) -> list[dict]:
    """The milliseconds of each operation at each shape; what does nothing takes none."""
    regime = REGIMES[net.regime]
    every = list(itertools.product(shapes, space.operations))
    real = [(shape, op) for shape, op in every if not does_nothing(op, shape, regime)]
    how = {"regime": regime, "batch": batch, "dtype": net.dtype, "train": False}
    calls = [alone(op, shape, **how).call_forward for shape, op in real]
    times = timing.fastest_of_each(calls, seconds=seconds)
    call = timing.call_seconds()
    ms = {one: 1000 * max(time - call, 0.0) for one, time in zip(real, times, strict=True)}
    return [
        {"operation": op, **shape._asdict(), "ms": ms.get((shape, op), 0.0)} for shape, op in every
    ]


def _connection_times(measured: dict, net: TargetNet, image_size: int, space: Space) -> Single:
    """Milliseconds by the table, summed over the cells of each type."""
    keys = ("operation", *OperationShape._fields)
    times = {tuple(row[key] for key in keys): row["ms"] for row in measured["operations"]}
    sizes = [space.num_candidates(j) for j in range(space.nodes)]
    single = [[np.zeros(n) for n in sizes] for _ in range(2)]
    for plan, outer, inner in cell_places(net, image_size):
        for j, n in enumerate(sizes):
            for flat in range(n):
                op, predecessor = space.connection(flat)
                shape = edge_shape(plan, predecessor, outer, inner)
                single[int(plan.reduction)][j][flat] += times[op, *shape]
    return single


def _extreme(table: Single, space: Space, sign: int) -> list[list[list[int]]]:
    """The support of the fastest (sign 1) or slowest (sign -1) candidates of each node."""

    def pick(cell_type: int, j: int) -> list[int]:
        some = np.array(space.candidates_of(cell_type, j))
        order = np.argsort(sign * table[cell_type][j][some], kind="stable")
        return some[order[: space.kept(j)]].tolist()

    return [[pick(c, j) for j in range(space.nodes)] for c in range(len(table))]


def _total(table: Single, support) -> float:
    return float(
        sum(table[k][j][list(picks)].sum() for k in range(2) for j, picks in enumerate(support[k]))
    )


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Base and factor of the line y = base + factor x with the least squares."""
    spread = x - x.mean()
    factor = float(spread @ y / max(spread @ spread, 1e-12))
    factor = max(factor, LEAST_FACTOR)
    return max(float(y.mean() - factor * x.mean()), 0.0), factor
