"""Architectures within a budget: at most so many parameters and multiply-adds in the target net.

Costs are sums over connections, so this is a knapsack with one choice per node: from z, take for
each node the pair (s connections) that has the most |z| and lets the whole stay within the budget.
"""

from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float, Int

from istanas_jax.networks.counting import cell_places, count, operation_work
from istanas_jax.networks.operations import REGIMES
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.space.connections import (
    NUM_INPUTS,
    OPERATIONS,
    num_candidates,
    split_index,
    stride_of,
)

COSTS = ("parameters", "multiply_adds")
HALVINGS = 60  # how often the interval of the price of a unit of cost is halved


class Budget:
    """Which supports are allowed.

    Args:
      net: the target net, with any genotype; its auxiliary head is not counted.
      limits: `max_parameters` and `max_multiply_adds`; 0 sets no limit.
      distinct: the connections of a node must have different predecessors.
    """

    def __init__(
        self,
        net: TargetNet,
        image_size: int,
        *,
        nodes: int,
        s: int,
        limits: tuple[int, int],
        distinct: bool = False,
    ):
        self.limits = np.array([limit or np.inf for limit in limits])
        self.picks = [_picks(j, s, distinct) for j in range(nodes)]
        self.single = _connection_costs(net, image_size, nodes)
        # Per cell type and node: the cost of each choice.
        self.costs = [
            [self.single[cell_type][j][self.picks[j]].sum(1) for j in range(nodes)]
            for cell_type in range(2)
        ]
        counted = count(net.clone(auxiliary=False), image_size)
        own = [
            sum(self.cost_of(cell_type, j, picks) for j, picks in enumerate(support))
            for cell_type, support in enumerate(net.genotype.supports())
        ]
        self.base = np.array([getattr(counted, cost) for cost in COSTS]) - sum(own)
        self._check_possible()

    def cost_of(self, cell_type: int, node: int, picks) -> np.ndarray:
        """(parameters, multiply-adds) of a node's connections."""
        return self.single[cell_type][node][list(picks)].sum(0)

    def total(self, support: Int[np.ndarray, "2 nodes s"]) -> np.ndarray:
        """(parameters, multiply-adds) of the target net."""
        return self.base + sum(
            self.cost_of(cell_type, j, picks)
            for cell_type, cell in enumerate(support)
            for j, picks in enumerate(cell)
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
            [strength[cell_type, j][self.picks[j]].sum(1) for j in range(len(self.picks))]
            for cell_type in range(2)
        ]
        places = [(cell_type, j) for cell_type in range(2) for j in range(len(self.picks))]
        fixed = {p: self._index(p[1], support[p]) for p in places if frozen[p]}
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
            picks = self.picks[j][chosen[cell_type, j]]
            # Strongest first, ties to the lower index.
            picked[cell_type, j] = picks[np.argsort(-strength[cell_type, j][picks], kind="stable")]
        return picked, True

    def _by_price(self, scores, fixed: dict) -> dict:
        """Give each node its best choice at the lowest price of cost that keeps the budget."""
        weight = 1 / np.where(np.isfinite(self.limits), self.limits, np.inf)

        def at(price: float) -> dict:
            chosen = dict(fixed)
            for cell_type in range(2):
                for j in range(len(self.picks)):
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
        none = [[np.zeros(len(picks)) for picks in self.picks]] * 2
        for cost, name in enumerate(COSTS):
            least = self.base[cost] + sum(c[:, cost].min() for cell in self.costs for c in cell)
            if least > self.limits[cost]:
                raise ValueError(
                    f"search.ista.budget.max_{name} is {self.limits[cost]:,.0f}, but the smallest "
                    f"network has {least:,.0f}"
                )
        if not self._fits(self._by_price(none, {})):
            raise ValueError(
                "search.ista.budget: no network was found that keeps both limits at once"
            )

    def _fits(self, chosen: dict) -> bool:
        return bool(np.all(self._sum(chosen) <= self.limits))

    def _sum(self, chosen: dict) -> np.ndarray:
        return self.base + sum(
            self.costs[cell_type][j][index] for (cell_type, j), index in chosen.items()
        )

    def _index(self, node: int, picks) -> int:
        return int(np.flatnonzero((self.picks[node] == np.sort(picks)).all(1))[0])


def _picks(node: int, s: int, distinct: bool) -> Int[np.ndarray, "choices s"]:
    """All choices of a node, each in rising order."""
    picks = np.array(list(combinations(range(num_candidates(node)), s)))
    if distinct:
        predecessors = split_index(picks)[0]
        picks = picks[(np.diff(predecessors, axis=1) > 0).all(1)]
    return picks


def _connection_costs(net: TargetNet, image_size: int, nodes: int) -> list[list[np.ndarray]]:
    """Costs per cell type and node, (candidates, 2), summed over the cells of that type."""
    costs = [[np.zeros((num_candidates(j), 2), np.int64) for j in range(nodes)] for _ in range(2)]
    regime = REGIMES[net.regime]
    for plan, outer, inner in cell_places(net, image_size):
        for j in range(nodes):
            for flat in range(num_candidates(j)):
                predecessor, op = split_index(flat)
                size = outer if predecessor < NUM_INPUTS else inner
                stride = stride_of(predecessor, plan.reduction)
                work = operation_work(OPERATIONS[op], plan.channels, size, stride, regime)
                costs[int(plan.reduction)][j][flat] += [getattr(work, cost) for cost in COSTS]
    return costs
