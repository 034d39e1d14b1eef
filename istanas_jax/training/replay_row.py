"""A row of a run's replay: how the architecture stands at one moment of a search.

A method writes a row at every recovery that changes a node, and at the beginning of every epoch.
The report, the judge and `inspect` read them. Keys that are `NotRequired` are missing in rows of
methods that have no such quantity, and of earlier versions.
"""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from jaxtyping import Bool, Float, Int
from numpy import ndarray

from istanas_jax.space.genotype import Genotype
from istanas_jax.space.spaces import DARTS, Space


class ReplayRow(TypedDict):
    """One row; arrays become lists in the file, and `n` is padded to the last node's."""

    phase: str  # "search 0"
    space: NotRequired[dict[str, Any]]  # `Space.to_dict`; missing: that of DARTS
    step: int  # before which the architecture stands like this
    epoch: NotRequired[int]
    z: Float[ndarray, "cells nodes n"]
    support: Int[ndarray, "cells nodes s"]  # flat indices, strongest first
    coefficients: Float[ndarray, "cells nodes s"]
    frozen: Bool[ndarray, "cells nodes"]
    distance: NotRequired[Float[ndarray, "cells nodes"]]  # how far z moved in this recovery
    kkt: NotRequired[Float[ndarray, "cells nodes"]]  # residual of the LASSO, in lambda
    budget_decided: NotRequired[bool]  # the support is not the recovered one: that is too large
    weight_free: NotRequired[list[int]]  # connections without weights, per cell
    percentile: NotRequired[float]  # the judge's, where it knows cells of this kind
    changed: NotRequired[Bool[ndarray, "cells nodes"]]  # nodes with other connections than before


def missing_key(row: Mapping[str, Any]) -> str | None:
    """The first required key that a row read from a file lacks."""
    return next((key for key in ReplayRow.__annotations__ if _lacks(row, key)), None)


def _lacks(row: Mapping[str, Any], key: str) -> bool:
    return key in ReplayRow.__required_keys__ and key not in row


def genotype_of(row: ReplayRow) -> Genotype:
    """The cells that a search would find if it ended with this row."""
    space = Space.from_dict(row["space"]) if "space" in row else DARTS
    return Genotype.from_supports(*row["support"], space)
