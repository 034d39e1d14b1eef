"""The architecture inside a checkpoint, in numpy: inspecting one must not start jax."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from istanas_jax.space.connections import CELL_TYPES
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.spaces import DARTS, Space
from istanas_jax.training.replay_row import ReplayRow

FIELDS = ("b", "A", "z", "support", "frozen")  # the arrays of an ArchState


def describe_nodes(
    arch: Mapping[str, np.ndarray],
    lam: float | None,
    replay: Replay | None = None,
    space: Space = DARTS,
) -> list[dict]:
    """Describe each node: b, z, connections (strongest first), how well z solves its LASSO.

    Args:
      arch: the arrays of an ArchState by name.
      lam: lambda; without it no residual can be computed.
      replay: what the run's replay log adds.
      space: what flat indices mean.
    """
    nodes = []
    for c, cell in enumerate(CELL_TYPES):
        for j in range(arch["b"].shape[1]):
            n = space.num_candidates(j)  # the rest is padding
            b, A, z = arch["b"][c, j], arch["A"][c, j][:, :n], arch["z"][c, j][:n]
            support = arch["support"][c, j][: space.kept(j) if space.uneven else None]
            frozen = bool(arch["frozen"][c, j])
            nodes.append(
                {
                    "cell": cell,
                    "node": j,
                    "frozen": frozen,
                    "frozen_since_epoch": replay.since[c][j] if replay and frozen else None,
                    "b": b.tolist(),
                    "z": z.tolist(),
                    "nonzero": int(np.count_nonzero(z)),
                    "support": support.tolist(),
                    "coefficients": coefficients(A, b, z, support).tolist(),
                    "connections": [space.connection(flat)._asdict() for flat in support.tolist()],
                    "kkt": None if lam is None else kkt_residual(A, b, z, lam),
                    "kkt_at_recovery": replay.kkt[c][j] if replay else None,
                }
            )
    return nodes


def genotype_of(support: Int[np.ndarray, "cells nodes s"], space: Space) -> Genotype:
    return Genotype.from_supports(*support.tolist(), space)


def coefficients(
    A: Float[np.ndarray, "m n"],
    b: Float[np.ndarray, " m"],
    z: Float[np.ndarray, " n"],
    support: Int[np.ndarray, " s"],
) -> Float[np.ndarray, " s"]:
    """w_S = bᵀA_S - z_SᵀE_SS, as `architecture.coefficients`."""
    A_S = A[:, support].astype(np.float64)
    E_SS = A_S.T @ A_S - np.eye(len(support))
    return b @ A_S - z[support] @ E_SS


def kkt_residual(
    A: Float[np.ndarray, "m n"], b: Float[np.ndarray, " m"], z: Float[np.ndarray, " n"], lam: float
) -> float:
    """Largest violation of the KKT conditions relative to lambda, as `active_set.kkt_residual`.

    float64 is precise enough to need none of the care taken there.
    """
    A, b, z = (x.astype(np.float64) for x in (A, b, z))
    correlation = A.T @ (b - A @ z)
    inactive = np.maximum(np.abs(correlation) - lam, 0)
    violation = np.where(z != 0, np.abs(correlation - lam * np.sign(z)), inactive)
    return float(violation.max() / lam)


class Replay(NamedTuple):
    """What a replay log tells about a checkpoint; lists are by cell type and node."""

    since: list[list[int | None]]  # the epoch in which a node was first frozen
    step: int  # step of the last recovery up to the checkpoint
    kkt: list[list[float]]  # residuals of that recovery


def read_replay(lines: Iterable[str], phase: str, step: int) -> Replay | None:
    """Read a log of a recovery per line; None if none of them precedes the checkpoint."""
    since, last = None, None
    for row in _rows(lines):
        if row["phase"] == phase and row["step"] <= step:
            since = since or [[None] * len(cell) for cell in row["frozen"]]
            for c, cell in enumerate(row["frozen"]):
                for j, frozen in enumerate(cell):
                    if frozen and since[c][j] is None:
                        since[c][j] = row["epoch"]
            if "kkt" in row:  # a recovery, not only a row at the start of an epoch
                last = row
    return last and Replay(since, last["step"], last["kkt"])


def _rows(lines: Iterable[str]) -> Iterator[ReplayRow]:
    """Yield the rows that are whole: a kill may cut the last one short."""
    for line in lines:
        with contextlib.suppress(ValueError):
            yield json.loads(line)
