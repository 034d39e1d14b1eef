"""Watching the cells of a search: connections without weights, the judge's view, when to stop.

A search collapses when pools and skip-connections take over its normal cell. The super-net may
still look fine, so the connections are counted, and a limit can warn or stop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ml_collections import ConfigDict

from istanas_jax.judge import regression
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.spaces import DARTS, Space

Supports = Sequence[Sequence[Sequence[int]]]  # (cells, nodes, s), flat indices
Memory = dict[str, Any]  # kept for a whole search, JSON-able


@dataclass(frozen=True)
class Rules:
    """Limits to the normal cell, see `search.stop`."""

    warning: float  # share of connections without weights above which there is a warning
    weight_free: int  # number of connections without weights that stops the search; 0: never
    unchanged_epochs: int  # number of epochs with the same support that stops it; 0: never

    @classmethod
    def of(cls, search: ConfigDict) -> "Rules":
        return cls(search.stop.warning, search.stop.weight_free, search.stop.unchanged_epochs)


class Watched:
    """The part of `Search` that watches; it needs its `method`, `rules`, `name` and `say`."""

    def begin_watching(self) -> None:
        """Forget what was seen: another search follows."""
        self.memory: Memory = {}
        self._weight_free: list[int] | None = None  # per cell, at the last row of the replay

    def seen(self, step: int, supports: Supports) -> dict[str, Any]:
        """What a row of the replay says of its cells; remembers those of the first step."""
        if step == 0:
            self.memory = remember(self.memory, supports, self.method.space)
        found = seen(supports, self.method.space)
        self._weight_free = found["weight_free"]
        return found

    def weight_free_in_short(self) -> str:
        """A note for the progress bar: connections without weights."""
        if self._weight_free is None:
            return ""
        return "  without weights {} normal, {} reduction".format(*self._weight_free)

    def watch(self, supports: Supports) -> dict[str, int]:
        """What an epoch's row says of the cells at its end; may stop the search."""
        normal, reduction = map(self.method.space.weight_free, supports)
        measured = {"weight_free_normal": normal, "weight_free_reduction": reduction}
        if not self.method.watched:
            return measured
        self.memory, said = follow(self.memory, supports, self.rules, self.method.space)
        if said:
            self.say(f"{self.name}: {said}")
        return measured | {"unchanged_epochs": self.memory["unchanged_epochs"]}


def seen(supports: Supports, space: Space = DARTS) -> dict[str, Any]:
    """Weight-free connections of the cells, and the judge's percentile where it applies."""
    found: dict[str, Any] = {"weight_free": list(map(space.weight_free, supports))}
    genotype = Genotype.from_supports(*supports, space)
    if regression.why_not(genotype) is None:
        found["percentile"] = round(regression.judge(genotype).percentile, 1)
    return found


def remember(memory: Memory, supports: Supports, space: Space = DARTS) -> Memory:
    """The memory of a search that begins with these cells."""
    free = space.weight_free(supports[0])
    return {"first_weight_free": free, "support": space.without_order(supports)} | memory


def follow(
    memory: Memory, supports: Supports, rules: Rules, space: Space = DARTS
) -> tuple[Memory, str | None]:
    """Return the memory after another epoch, and a message about it, if there is one.

    `stopped` in the memory says why the search is over. Only growth is warned of: a search that
    begins with many connections without weights has not collapsed.
    """
    now, normal = space.without_order(supports), supports[0]
    free, connections = space.weight_free(normal), sum(map(len, space.own(normal)))
    unchanged = memory.get("unchanged_epochs", 0) + 1 if memory.get("support") == now else 0
    memory = memory | {"support": now, "unchanged_epochs": unchanged}
    said = f"{free} of {connections} connections of the normal cell have no weights"
    if rules.weight_free and free >= rules.weight_free:
        memory["stopped"] = said
    elif rules.unchanged_epochs and unchanged >= rules.unchanged_epochs:
        memory["stopped"] = f"the support has not changed for {unchanged} epochs"
    if "stopped" in memory:
        return memory, f"the search stops: {memory['stopped']}"
    grown = free > memory.get("first_weight_free", 0)
    if grown and free > rules.warning * connections and not memory.get("warned"):
        started = memory.get("first_weight_free", 0)
        return memory | {"warned": True}, (
            f"warning: {said}, {started} had none at the start; a collapsing search looks like this"
        )
    return memory, None
