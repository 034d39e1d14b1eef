"""Architectures within a budget: the target net has at most so many parameters and multiply-adds,
and takes at most so many milliseconds.

Costs are sums over connections, so this is a knapsack with one choice per node: from z, take for
each node the pair (s connections) that has the most |z| and lets the whole stay within the budget.
"""

from functools import partial
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float, Int
from ml_collections import ConfigDict

from istanas_jax.networks.counting import cell_places, count, operation_work
from istanas_jax.networks.latency import Latencies, latencies, measure
from istanas_jax.networks.operations import REGIMES
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.space.connections import NUM_INPUTS, stride_of
from istanas_jax.space.spaces import Space
from istanas_jax.sparse_coding.architecture import Coding

COSTS = ("parameters", "multiply_adds", "latency_ms")
COUNTED = COSTS[:2]
HALVINGS = 60  # how often the interval of the price of a unit of cost is halved


class Budget:
    """Which supports are allowed.

    Args:
      net: the target net, with any genotype; its auxiliary head is not counted.
      limits: `max_parameters`, `max_multiply_adds` and, with latencies, `max_latency_ms`; 0 sets
        no limit.
      distinct: the connections of a node must have different predecessors.
      latencies: what each connection adds to the latency of the net.
    """

    def __init__(
        self,
        net: TargetNet,
        image_size: int,
        *,
        space: Space,
        limits: tuple[float, ...],
        distinct: bool = False,
        latencies: Latencies | None = None,
    ):
        self.limits, self.space = np.array([limit or np.inf for limit in limits]), space
        nodes = range(space.nodes)
        self.picks = [[_picks(space, c, j, distinct) for j in nodes] for c in range(2)]
        self.single = _connection_costs(net, image_size, space)
        if latencies is not None:
            for counted, timed in zip(self.single, latencies.single, strict=True):
                counted[:] = map(np.column_stack, zip(counted, timed, strict=True))
        # Per cell type and node: the cost of each choice.
        self.costs = [
            [self.single[cell_type][j][self.picks[cell_type][j]].sum(1) for j in nodes]
            for cell_type in range(2)
        ]
        counted = count(net.clone(auxiliary=False), image_size)
        own = [
            sum(self.cost_of(cell_type, j, picks) for j, picks in enumerate(support))
            for cell_type, support in enumerate(net.genotype.supports(space))
        ]
        known = [getattr(counted, cost) for cost in COUNTED]
        if latencies is not None:
            known.append(latencies.of(net.genotype))
        self.base = np.array(known) - sum(own)
        self._check_possible()

    def cost_of(self, cell_type: int, node: int, picks) -> np.ndarray:
        """(parameters, multiply-adds) of a node's connections, with latencies also milliseconds."""
        return self.single[cell_type][node][list(picks)].sum(0)

    def total(self, support: Int[np.ndarray, "2 nodes s"]) -> np.ndarray:
        """(parameters, multiply-adds) of the target net, with latencies also milliseconds."""
        return self.base + sum(
            self.cost_of(cell_type, j, picks)
            for cell_type, cell in enumerate(support)
            for j, picks in enumerate(self.space.own(cell))
        )

    def choose(
        self,
        strength: Float[np.ndarray, "2 nodes n"],
        support: Int[np.ndarray, "2 nodes s"],
        frozen: Bool[np.ndarray, "2 nodes"],
    ) -> tuple[Int[np.ndarray, "2 nodes s"], bool]:
        """Return the support if it is within the budget, else the best that is, and whether the
        budget decided. Frozen nodes keep their connections."""
        if np.all(self.total(support) <= self.limits):
            return support, False
        scores = [
            [strength[cell_type, j][picks].sum(1) for j, picks in enumerate(self.picks[cell_type])]
            for cell_type in range(2)
        ]
        places = [(cell_type, j) for cell_type in range(2) for j in range(self.space.nodes)]
        fixed = {p: self._index(*p, support[p]) for p in places if frozen[p]}
        chosen = self._by_price(scores, fixed)
        # The price has left something over: give it to the nodes that it hit hardest.
        free = sorted(
            (p for p in places if p not in fixed),
            key=lambda p: scores[p[0]][p[1]][chosen[p]] - scores[p[0]][p[1]].max(),
        )
        changed = True
        while changed:
            changed = False
            for cell_type, j in free:
                others = self._sum(chosen) - self.costs[cell_type][j][chosen[cell_type, j]]
                fits = np.all(others + self.costs[cell_type][j] <= self.limits, axis=1)
                best = int(np.argmax(np.where(fits, scores[cell_type][j], -np.inf)))
                if scores[cell_type][j][best] > scores[cell_type][j][chosen[cell_type, j]]:
                    chosen[cell_type, j], changed = best, True
        picked = np.array(support)
        for cell_type, j in free:
            picks = self.picks[cell_type][j][chosen[cell_type, j]]
            # Strongest first, ties to the lower index.
            picks = picks[np.argsort(-strength[cell_type, j][picks], kind="stable")]
            picked[cell_type, j] = picks[self.space.ranks[j]]
        return picked, True

    def _by_price(self, scores, fixed: dict) -> dict:
        """Give each node its best choice at the lowest price of cost that keeps the budget."""
        weight = 1 / np.where(np.isfinite(self.limits), self.limits, np.inf)

        def at(price: float) -> dict:
            chosen = dict(fixed)
            for cell_type in range(2):
                for j in range(self.space.nodes):
                    if (cell_type, j) not in fixed:
                        cost = self.costs[cell_type][j] @ weight
                        value = -cost if np.isinf(price) else scores[cell_type][j] - price * cost
                        chosen[cell_type, j] = int(np.argmax(value))
            return chosen

        low, high = 0.0, 1.0
        while not self._fits(at(high)) and high < 1e30:
            high *= 10
        if not self._fits(at(high)):
            return at(np.inf)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._fits(at(middle)) else (middle, high)
        return at(high)

    def _check_possible(self) -> None:
        none = [[np.zeros(len(picks)) for picks in cell] for cell in self.picks]
        for cost, limit in enumerate(self.limits):
            least = self.base[cost] + sum(c[:, cost].min() for cell in self.costs for c in cell)
            if least > limit:
                name = f"search.ista.budget.max_{COSTS[cost]}"
                if COSTS[cost] in COUNTED:
                    words = f"{limit:,.0f}, but the smallest network has {least:,.0f}"
                else:
                    words = f"{limit:.3g}, but the fastest network takes {least:.3g} ms here"
                raise ValueError(f"{name} is {words}")
        if not self._fits(self._by_price(none, {})):
            raise ValueError(
                "search.ista.budget: no network was found that keeps all limits at once"
            )

    def _fits(self, chosen: dict) -> bool:
        return bool(np.all(self._sum(chosen) <= self.limits))

    def _sum(self, chosen: dict) -> np.ndarray:
        return self.base + sum(
            self.costs[cell_type][j][index] for (cell_type, j), index in chosen.items()
        )

    def _index(self, cell_type: int, node: int, picks) -> int:
        own = np.sort(picks[: self.space.kept(node)])
        return int(np.flatnonzero((self.picks[cell_type][node] == own).all(1))[0])


def _picks(space: Space, cell_type: int, node: int, distinct: bool) -> Int[np.ndarray, "choices s"]:
    """All choices of a node, each in rising order."""
    some = space.candidates_of(cell_type, node)
    picks = np.array(list(combinations(some, space.kept(node))))
    if distinct:
        predecessors = space.split_index(picks)[0]
        picks = picks[(np.diff(predecessors, axis=1) > 0).all(1)]
    return picks


def _connection_costs(net: TargetNet, image_size: int, space: Space) -> list[list[np.ndarray]]:
    """Costs per cell type and node, (candidates, 2), summed over the cells of that type."""
    nodes, sizes = range(space.nodes), [space.num_candidates(j) for j in range(space.nodes)]
    costs = [[np.zeros((n, 2), np.int64) for n in sizes] for _ in range(2)]
    regime = REGIMES[net.regime]
    for plan, outer, inner in cell_places(net, image_size):
        for j in nodes:
            for flat in range(sizes[j]):
                predecessor, op = space.split_index(flat)
                size = outer if predecessor < NUM_INPUTS else inner
                stride = stride_of(predecessor, plan.reduction)
                work = operation_work(space.operations[op], plan.channels, size, stride, regime)
                costs[int(plan.reduction)][j][flat] += [getattr(work, cost) for cost in COUNTED]
    return costs


def budget_of(settings: ConfigDict, search, coding: Coding, *, timed: bool) -> Budget | None:
    """The budget of a search by the settings of ISTA-NAS; None if they set no limit.

    timed: keep `max_latency_ms` too, by what is measured now, once in a run.
    """
    own, net, size = settings.budget, search.target, search.dataset.image_size
    limits = [own.max_parameters, own.max_multiply_adds]
    more = {}
    if timed and own.max_latency_ms:
        limits.append(own.max_latency_ms)
        how = {"space": coding.space, "say": search.say}
        measured = search.keep(partial(measure, net, size, own.latency_batch, **how))
        more["latencies"] = latencies(measured, net, size, coding.space)
    if not any(limits):
        return None
    choice = {"space": coding.space, "distinct": coding.distinct}
    return Budget(net, size, **choice, limits=tuple(limits), **more)
