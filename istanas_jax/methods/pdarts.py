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
from istanas_jax.methods.tables import SKIP, Table, TableArch, TableMethod, strongest
from istanas_jax.networks.supernet.dense import Mixture
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.space.connections import edge_index
from istanas_jax.space.spaces import Space
from istanas_jax.training import streams
from istanas_jax.training.states import TrainState


class PDarts(TableMethod):
    """One stage of P-DARTS; `found` is the outcome of the previous one.

    Candidates are entries of alpha: the zero operation, if the space weighs it, comes first.
    """

    name = "pdarts"
    title = "P-DARTS"

    def __init__(self, config, steps_per_epoch: int, *, stage: int = 0, found=None):
        super().__init__(config, steps_per_epoch, stage=stage, found=found)
        own = self.settings
        self.stages = len(own.stage_cells)
        self.dropout, self.warmup = own.dropout[stage], own.warmup_epochs
        if found is not None:
            self.exists = np.zeros_like(self.exists)
            for cell_type, edges in enumerate(found["candidates"]):
                for edge, entries in enumerate(edges):
                    self.exists[cell_type, edge, entries] = True

    def sizes(self) -> tuple[int, int]:
        own = self.settings
        if len({len(own.stage_cells), len(own.candidates), len(own.dropout)}) > 1:
            raise ValueError(
                "search.pdarts: stage_cells, candidates and dropout must have one entry per stage"
            )
        return own.stage_cells[self.stage], own.epochs

    def adapt_net(self, net: SuperNet) -> SuperNet:
        exist = tuple(
            tuple(tuple(np.flatnonzero(row).tolist()) for row in edges)
            for edges in self.exists[..., self.zero :]
        )
        net = super().adapt_net(net)
        return net.clone(candidates=None if self.exists.all() else exist)

    def table(self, alpha) -> Table:
        return self.softmax_table(alpha)

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
            return outcome | {"candidates": best_candidates(alpha, self.exists, keep)}
        table = np.asarray(self.table(alpha))
        most = self.settings.max_skips
        outcome["support"], outcome["coefficients"] = limit_skips(table, self.space, most)
        return outcome


def best_candidates(alpha, exists, keep: int) -> list[list[list[int]]]:
    """The `keep` existing entries of largest alpha, per cell type and edge."""
    order = np.argsort(-np.where(exists, alpha, -np.inf), -1, kind="stable")[..., :keep]
    return [
        [sorted(n for n in row.tolist() if own[n]) for row, own in zip(*pair, strict=True)]
        for pair in zip(order, exists, strict=True)
    ]


def limit_skips(table: np.ndarray, space: Space, most: int):
    """`strongest`, with at most so many skip-connections in the normal cell.

    While there are more, the weakest of them is taken out of the table; one that is all its edge
    can have stays. Cells that are alike are so afterwards.
    """
    table = table.copy()
    skip = space.operations.index(SKIP) if SKIP in space.operations else None
    while True:
        support, weights = (np.asarray(x) for x in strongest(jnp.asarray(table), space))
        predecessor, op = space.split_index(support[0])
        skips = [
            (weights[0, j, k], edge_index(j, int(predecessor[j, k])))
            for j, k in np.argwhere(op == skip)
            if k < space.kept(j)
        ]
        removable = [found for found in skips if found[0] > 0]
        if len(skips) <= most or not removable:
            return support, weights
        table[: 1 + space.alike, min(removable)[1], skip] = 0
