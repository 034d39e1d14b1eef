"""The search spaces that go by a name, and those that a config asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from istanas_jax.space.connections import num_edges
from istanas_jax.space.operations import AUXILIARY_SKIP, NONE
from istanas_jax.space.search_space import Candidates, Space, SpaceError, frozen

DARTS = Space(
    "darts",
    (
        "max_pool_3x3",
        "avg_pool_3x3",
        "skip_connect",
        "sep_conv_3x3",
        "sep_conv_5x5",
        "dil_conv_3x3",
        "dil_conv_5x5",
    ),
)

# RobustDARTS (Zela et al., ICLR 2020), S1: the two operations of each edge, as released.
_SHORT = {
    "m": "max_pool_3x3",
    "a": "avg_pool_3x3",
    "i": "skip_connect",
    "s": "sep_conv_3x3",
    "d": "dil_conv_3x3",
    "D": "dil_conv_5x5",
}
_S1 = (
    "id iD | iD is id | mi is is id | is mi id dD dD",
    "ma md | ma ma iD | ma ms id iD | ma ma iD iD iD",
)


_NO_SKIP = tuple(name for name in DARTS.operations if name != "skip_connect")

# DARTS-Bench-Suite: its super-nets, each with three sets of operations.
SUITE_NETS = {
    "wide": {"cells": 4, "channels": 18},
    "deep": {"cells": 18, "channels": 7},
    "single_cell": {"cells": 1, "channels": 26},
}


def _suite(net: str) -> tuple[Space, Space, Space]:
    regular = replace(DARTS, name=net, nodes=8 if net == "single_cell" else DARTS.nodes)
    return (
        regular,
        replace(regular, name=f"{net}_no_skip", operations=_NO_SKIP),
        replace(
            regular,
            name=f"{net}_all_skip",
            operations=(*DARTS.operations, AUXILIARY_SKIP),
            distinct=True,
        ),
    )


def suite_net(space: str) -> dict[str, int]:
    """Cells and channels of the super-net that a space of DARTS-Bench-Suite is searched in."""
    return next((net for name, net in SUITE_NETS.items() if space.startswith(name)), {})


def _robust(name: str, *operations: str, **own) -> Space:
    return Space(name, operations, zero=False, **own)


SPACES = {
    space.name: space
    for space in (
        DARTS,
        replace(DARTS, name="darts_no_skip", operations=_NO_SKIP),
        # The operations of NAS-Bench-201 (Dong and Yang, ICLR 2020) in the cells of DARTS.
        Space("nas_bench_201", ("skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")),
        _robust(
            "s1",
            *_SHORT.values(),
            candidates=tuple(
                tuple(
                    tuple(_SHORT[letter] for letter in pair) for pair in cell.split() if pair != "|"
                )
                for cell in _S1
            ),
        ),
        _robust("s2", "skip_connect", "sep_conv_3x3"),
        _robust("s3", NONE, "skip_connect", "sep_conv_3x3"),
        _robust("s4", "noise", "sep_conv_3x3"),
        *(space for net in SUITE_NETS for space in _suite(net)),
    )
}


def read_space(block: Mapping[str, Any]) -> Space:
    """The space of a config's block `space`; what is empty is as the named space has it."""
    name = block.get("name") or DARTS.name
    if name not in SPACES:
        raise SpaceError(f"unknown space {name!r}, there are: {', '.join(SPACES)}")
    named = SPACES[name]
    own: dict[str, Any] = {
        key: frozen(value)
        for key in ("operations", "nodes", "s", "distinct", "candidates", "alike", "zero")
        if (value := block.get(key)) not in (None, (), [], 0) or value is False
    }
    s = own.get("s")
    if isinstance(s, tuple) and len(s) == 1:
        own["s"] = s[0]
    if named.candidates is not None and "candidates" not in own:
        own["candidates"] = _fewer(named.candidates, own)
    return replace(named, **own)


def _fewer(candidates: Candidates, own: Mapping[str, Any]) -> Candidates:
    """The candidates of a named space that are left with fewer nodes or operations."""
    edges = num_edges(own["nodes"]) if "nodes" in own else None
    return tuple(
        tuple(
            tuple(name for name in names if name in own.get("operations", names))
            for names in cell[:edges]
        )
        for cell in candidates
    )
