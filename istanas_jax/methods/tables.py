"""What DARTS and its descendants share: a weight per edge and operation, all of which run.

alpha has, per cell type and edge, an entry for each candidate and, in first place and if the space
says so, one for the zero operation. That has no output, so its weight only takes from the others'.
"""

from abc import abstractmethod
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from istanas_jax.methods.contract import Method, Snapshot
from istanas_jax.networks.supernet.dense import Mixture
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.space.connections import edge_index, num_edges, num_predecessors
from istanas_jax.space.operations import NONE
from istanas_jax.space.spaces import Space
from istanas_jax.sparse_coding.architecture import fill_up, only_kept
from istanas_jax.training.states import SearchState, TrainState

SKIP = "skip_connect"

Table = Float[Array, "types edges ops"]


@flax.struct.dataclass
class TableArch:
    """The architecture of a method with a table."""

    alpha: Any  # trained
    support: Int[Array, "types nodes s"]  # read off when the epoch began


class TableMethod(Method):
    """A method that says what table its alpha makes."""

    dense = True
    weighs_zero = True  # a zero operation besides the candidates, if the space says so

    def __init__(self, config, steps_per_epoch: int, **stage):
        super().__init__(config, steps_per_epoch, **stage)
        space, method = self.space, config.search.method
        for node in range(space.nodes):
            if space.kept(node) > num_predecessors(node):
                raise ValueError(
                    f"space.s is {space.kept(node)}, but {method} takes that many predecessors "
                    f"for node {node}, which has {num_predecessors(node)}"
                )
        # Entries of alpha before those of the candidates.
        self.zero = int(space.zero and self.weighs_zero)
        before = [(0, 0), (0, 0), (self.zero, 0)]
        self.exists = np.pad(candidates_of(space), before, constant_values=True)

    def adapt_net(self, net: SuperNet) -> SuperNet:
        return net.clone(recompute=self.settings.recompute)

    @abstractmethod
    def table(self, alpha) -> Table:
        """The weights of the candidates, by which connections are chosen in the end."""

    def init_alpha(self, key: jax.Array) -> Any:
        return self.settings.sigma * jax.random.normal(key, self.alpha_shape)

    @property
    def alpha_shape(self) -> tuple[int, int, int]:
        return 2, num_edges(self.space.nodes), self.zero + self.space.num_ops

    def existing(self, alpha: Float[Array, "types edges entries"]) -> Array:
        """alpha, -inf where there is no candidate."""
        return alpha if self.exists.all() else jnp.where(self.exists, alpha, -jnp.inf)

    def softmax_table(self, alpha: Float[Array, "types edges entries"]) -> Table:
        """DARTS, Eq. (2): softmax over all entries, the zero operation's left out."""
        return jax.nn.softmax(self.existing(alpha), -1)[..., self.zero :]

    def init_variables(self, key: jax.Array) -> TableArch:
        alpha = self.for_both(self.init_alpha(key))
        return TableArch(alpha, strongest(self.table(alpha), self.space)[0])

    def trainable(self, arch: TableArch) -> Any:
        return self.trained(arch.alpha)

    def with_trainable(self, arch: TableArch, trainable) -> TableArch:
        return arch.replace(alpha=self.for_both(trainable))

    def network_inputs(self, arch: TableArch, weights: TrainState | None = None) -> dict[str, Any]:
        return {"mixture": Mixture(self.table(arch.alpha))}

    def snapshot(self, arch: TableArch) -> Snapshot:
        table = self.table(arch.alpha)
        support, weights = strongest(table, self.space)
        return {
            "z": by_node(table, self.space),
            "support": support,
            "coefficients": weights,
            "frozen": jnp.zeros(support.shape[:2], bool),
        }

    def between_steps(self, search, state: SearchState, step: int) -> SearchState:
        """Remember, between epochs, what a genotype would be."""
        if step % self.steps_per_epoch == 0:
            shown = self._snapshot(state.arch)
            # Copied, since the step gives its state up.
            report = {"before": np.asarray(state.arch.support)} if step else None
            support = search.devices.replicate(np.asarray(shown["support"]))
            state = state.replace(arch=state.arch.replace(support=support))
            self.reports.append((step, report, shown))
        return state

    def inspect_report(self, search, step: int, report: dict) -> None:
        search.notes["changed"] = self.changed


def candidates_of(space: Space) -> Bool[np.ndarray, "types edges ops"]:
    """Which operations each edge can have."""
    everything = [[range(space.num_ops)] * num_edges(space.nodes)] * 2
    found = np.zeros((2, num_edges(space.nodes), space.num_ops), bool)
    for cell_type, edges in enumerate(space.numbers or everything):
        for edge, ops in enumerate(edges):
            found[cell_type, edge, list(ops)] = True
    return found


def keepable(space: Space) -> Bool[np.ndarray, "types edges ops"]:
    """Which operations a genotype can have: all candidates but the zero operation."""
    return candidates_of(space) & np.array([op != NONE for op in space.operations])


def strongest(
    table: Table, space: Space
) -> tuple[Int[Array, "types nodes s"], Float[Array, "types nodes s"]]:
    """DARTS, Section 2.4: take each edge's best operation and each node's s best edges.

    Returns flat indices, strongest first, and their weights.
    """
    if space.numbers is not None or NONE in space.operations:
        table = jnp.where(keepable(space), table, -jnp.inf)
    supports, weights = [], []
    for node in range(space.nodes):
        rows = table[:, edge_index(node, 0) : edge_index(node + 1, 0)]
        weight, predecessor = lax.top_k(rows.max(-1), min(space.most, rows.shape[1]))
        op = jnp.take_along_axis(rows.argmax(-1), predecessor, -1)
        missing = [(0, 0), (0, space.most - weight.shape[1])]
        support = space.flat_index(predecessor, op).astype(jnp.int32)
        supports.append(jnp.pad(support, missing))
        weights.append(jnp.pad(weight, missing))
    support, weight = jnp.stack(supports, 1), jnp.stack(weights, 1)
    return fill_up(support, space), only_kept(weight, space)


def by_node(table: Table, space: Space) -> Float[Array, "types nodes n"]:
    """Lay the table out as z is: a node's candidates in the order of flat indices, then 0."""
    rows = [
        table[:, edge_index(node, 0) : edge_index(node + 1, 0)].reshape(len(table), -1)
        for node in range(space.nodes)
    ]
    longest = space.max_candidates
    return jnp.stack([jnp.pad(row, [(0, 0), (0, longest - row.shape[1])]) for row in rows], 1)
