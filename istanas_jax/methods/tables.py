"""What DARTS and its descendants share: a weight per edge and operation, all of which run.

alpha has, per cell type and edge, an entry for the zero operation, in first place, and one for
each candidate. The zero operation has no output, so its weight only takes from the others'.
"""

from abc import abstractmethod
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from istanas_jax.methods.contract import Method, Snapshot
from istanas_jax.networks.supernet.dense import Mixture
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.space.connections import (
    NUM_INPUTS,
    NUM_OPS,
    OPERATIONS,
    edge_index,
    flat_index,
    max_candidates,
    num_edges,
)
from istanas_jax.training.states import SearchState, TrainState

ZERO = 1  # entries of alpha before those of the candidates
SKIP = OPERATIONS.index("skip_connect")

Table = Float[Array, "types edges ops"]


@flax.struct.dataclass
class TableArch:
    """The architecture of a method with a table."""

    alpha: Any  # trained
    support: Int[Array, "types nodes s"]  # read off when the epoch began


class TableMethod(Method):
    """A method that says what table its alpha makes."""

    dense = True

    def __init__(self, config, steps_per_epoch: int, **stage):
        super().__init__(config, steps_per_epoch, **stage)
        if self.s > NUM_INPUTS:
            raise ValueError(
                f"architecture.s is {self.s}, but {config.search.method} takes that many "
                f"predecessors for each node, and the first node has {NUM_INPUTS}"
            )

    def adapt_net(self, net: SuperNet) -> SuperNet:
        return net.clone(recompute=self.settings.recompute)

    @abstractmethod
    def table(self, alpha) -> Table:
        """The weights of the candidates, by which connections are chosen in the end."""

    def init_alpha(self, key: jax.Array) -> Any:
        return self.settings.sigma * jax.random.normal(key, self.alpha_shape)

    @property
    def alpha_shape(self) -> tuple[int, int, int]:
        return 2, num_edges(self.nodes), ZERO + NUM_OPS

    def init_variables(self, key: jax.Array) -> TableArch:
        alpha = self.init_alpha(key)
        return TableArch(alpha, strongest(self.table(alpha), self.nodes, self.s)[0])

    def trainable(self, arch: TableArch) -> Any:
        return arch.alpha

    def with_trainable(self, arch: TableArch, trainable) -> TableArch:
        return arch.replace(alpha=trainable)

    def network_inputs(self, arch: TableArch, weights: TrainState | None = None) -> dict[str, Any]:
        return {"mixture": Mixture(self.table(arch.alpha))}

    def snapshot(self, arch: TableArch) -> Snapshot:
        table = self.table(arch.alpha)
        support, weights = strongest(table, self.nodes, self.s)
        return {
            "z": by_node(table, self.nodes),
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


def softmax_table(alpha: Float[Array, "types edges entries"]) -> Table:
    """DARTS, Eq. (2): softmax over all entries, the zero operation's left out."""
    return jax.nn.softmax(alpha, -1)[..., ZERO:]


def strongest(
    table: Table, nodes: int, s: int
) -> tuple[Int[Array, "types nodes s"], Float[Array, "types nodes s"]]:
    """DARTS, Section 2.4: take each edge's best operation and each node's s best edges.

    Returns flat indices, strongest first, and their weights.
    """
    supports, weights = [], []
    for node in range(nodes):
        rows = table[:, edge_index(node, 0) : edge_index(node + 1, 0)]
        weight, predecessor = lax.top_k(rows.max(-1), s)
        op = jnp.take_along_axis(rows.argmax(-1), predecessor, -1)
        supports.append(flat_index(predecessor, op).astype(jnp.int32))
        weights.append(weight)
    return jnp.stack(supports, 1), jnp.stack(weights, 1)


def by_node(table: Table, nodes: int) -> Float[Array, "types nodes n"]:
    """Lay the table out as z is: a node's candidates in the order of flat indices, then 0."""
    rows = [
        table[:, edge_index(node, 0) : edge_index(node + 1, 0)].reshape(len(table), -1)
        for node in range(nodes)
    ]
    longest = max_candidates(nodes)
    return jnp.stack([jnp.pad(row, [(0, 0), (0, longest - row.shape[1])]) for row in rows], 1)
