"""P-DARTS (Chen et al., ICCV 2019): stages of growing depth with ever fewer candidates.

Each stage is a DARTS search, first order, with a super-net of its own. W is trained alone in its
first epochs. Each edge keeps the candidates of largest weight for the next stage, in which the
others do not exist and cost nothing. Skip-connections are dropped out, at a rate that decays within
a stage, and the normal cell ends with at most `max_skips` of them.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from istanas_jax.devices.parallel import AXIS
from istanas_jax.methods.contract import after_warmup
from istanas_jax.methods.tables import (
    SKIP,
    ZERO,
    Table,
    TableArch,
    TableMethod,
    softmax_table,
    strongest,
)
from istanas_jax.networks.supernet.dense import Mixture
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.space.connections import NUM_OPS, edge_index, num_edges, split_index
from istanas_jax.training import streams
from istanas_jax.training.states import TrainState


class PDarts(TableMethod):
    """One stage of P-DARTS; `found` is the outcome of the previous one.

    Candidates are entries of alpha: 0 for the zero operation, 1 + op for the others.
    """

    name = "pdarts"
    title = "P-DARTS"

    def __init__(self, config, steps_per_epoch: int, *, stage: int = 0, found=None):
        super().__init__(config, steps_per_epoch, stage=stage, found=found)
        own = self.settings
        self.stages = len(own.stage_cells)
        self.dropout, self.warmup = own.dropout[stage], own.warmup_epochs
        everything = [[list(range(ZERO + NUM_OPS))] * num_edges(self.nodes)] * 2
        self.candidates = everything if found is None else found["candidates"]
        mask = np.zeros(self.alpha_shape, bool)
        for cell_type, edges in enumerate(self.candidates):
            for edge, entries in enumerate(edges):
                mask[cell_type, edge, entries] = True
        self.mask = mask

    def sizes(self) -> tuple[int, int]:
        own = self.settings
        if len({len(own.stage_cells), len(own.candidates), len(own.dropout)}) > 1:
            raise ValueError(
                "search.pdarts: stage_cells, candidates and dropout must have one entry per stage"
            )
        return own.stage_cells[self.stage], own.epochs

    def adapt_net(self, net: SuperNet) -> SuperNet:
        exist = tuple(
            tuple(tuple(n - ZERO for n in entries if n >= ZERO) for entries in edges)
            for edges in self.candidates
        )
        net = super().adapt_net(net)
        return net.clone(candidates=None if self.mask.all() else exist)

    def table(self, alpha) -> Table:
        return softmax_table(jnp.where(self.mask, alpha, -jnp.inf))

    def moves_at(self, step: Int[Array, ""]) -> Array | None:
        return after_warmup(self.warmup, self.steps_per_epoch, step)

    def dropout_rate(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """The rate falls linearly while only W is trained, then exponentially."""
        epoch = step // self.steps_per_epoch
        alone = (self.epochs - epoch - 1) / self.epochs
        moving = jnp.exp(-self.settings.dropout_decay * (epoch - self.warmup))
        return self.dropout * jnp.where(epoch < self.warmup, alone, moving)

    def network_inputs(
        self, arch: TableArch, weights: TrainState | None = None
    ) -> dict[str, Mixture]:
        table = self.table(arch.alpha)
        if weights is None or not self.dropout:
            return {"mixture": Mixture(table)}
        key = jax.random.fold_in(weights.key(streams.METHOD), jax.lax.axis_index(AXIS))
        return {"mixture": Mixture(table, drop=(key, self.dropout_rate(weights.step)))}

    def outcome(self, search, state) -> dict:
        outcome = super().outcome(search, state)
        alpha = np.asarray(state.arch.alpha)
        if self.stage + 1 < self.stages:
            keep = self.settings.candidates[self.stage + 1]
            return outcome | {"candidates": best_candidates(alpha, self.mask, keep)}
        table = np.asarray(self.table(alpha))
        most = self.settings.max_skips
        outcome["support"], outcome["coefficients"] = limit_skips(table, self.nodes, self.s, most)
        return outcome


def best_candidates(alpha, mask, keep: int) -> list[list[list[int]]]:
    """The `keep` existing entries of largest alpha, per cell type and edge."""
    order = np.argsort(-np.where(mask, alpha, -np.inf), -1, kind="stable")[..., :keep]
    return np.sort(order, -1).tolist()


def limit_skips(table: np.ndarray, nodes: int, s: int, most: int):
    """`strongest`, with at most so many skip-connections in the normal cell.

    While there are more, the weakest of them is taken out of the table.
    """
    table = table.copy()
    while True:
        support, weights = (np.asarray(x) for x in strongest(jnp.asarray(table), nodes, s))
        predecessor, op = split_index(support[0])
        skips = [
            (weights[0, j, k], edge_index(j, int(predecessor[j, k])))
            for j, k in np.argwhere(op == SKIP)
        ]
        if len(skips) <= most:
            return support, weights
        table[0, min(skips)[1], SKIP] = 0
