"""What the text of a compiled program tells about a run of it.

XLA's own cost analysis counts the body of a loop once; here it counts as often as it turns.
"""

import re
from collections.abc import Callable
from functools import cache
from math import prod


def add_up(hlo: str, measure: Callable[[str], float]) -> float:
    """Add up a measure over a run: loops count by their turns, alternatives by their mean."""
    found = computations(hlo)

    @cache
    def total(name: str) -> float:
        return sum(measure(line) + inside(line) for line in found[name])

    def inside(line: str) -> float:
        if body := re.search(r" while\(.*\bbody=%?([\w.-]+)", line):
            condition = re.search(r"\bcondition=%?([\w.-]+)", line)[1]
            return _turns(found[condition]) * total(body[1])
        if " conditional(" in line:
            listed = re.search(r"(?:branch_computations=\{([^}]*)\})", line)
            branches = (
                listed[1]
                if listed
                else ",".join(re.findall(r"(?:true|false)_computation=%?([\w.-]+)", line))
            )
            values = [total(branch.strip(" %")) for branch in branches.split(",")]
            return sum(values) / len(values)
        if called := re.search(r" call\(.*\bto_apply=%?([\w.-]+)", line):
            return total(called[1])
        return 0

    return total("ENTRY")


def computations(hlo: str) -> dict[str, list[str]]:
    """The instructions of each computation, by name; the first to run is ENTRY."""
    found: dict[str, list[str]] = {}
    for line in hlo.splitlines():
        if begin := re.match(r"(ENTRY )?%?([\w.-]+) \(.*\{$", line):
            found["ENTRY" if begin[1] else begin[2]] = inside = []
        elif " = " in line and found:
            inside.append(line)
    return found


def _turns(condition: list[str]) -> int:
    """Turns of a loop that counts up from 0, as `lax.scan` makes it; 1 for any other loop."""
    limits = [
        int(n) for line in condition for n in re.findall(r"= s32\[\]\S* constant\((\d+)", line)
    ]
    return max(limits, default=1)


def reduced_bytes(hlo: str) -> int:
    """Bytes that all-reduces of a run send around."""

    def measure(line: str) -> int:
        if not (result := re.search(r"= (.*?) all-reduce(?:-start)?\(", line)):
            return 0
        total = 0
        for dtype, shape in re.findall(r"([a-z]+\d+|pred)\[([\d,]*)\]", result[1]):
            bits = int(re.sub(r"\D", "", dtype) or 8)
            total += prod(map(int, filter(None, shape.split(",")))) * bits // 8
        return total

    return int(add_up(hlo, measure))


def estimated_cycles(hlo: str) -> float:
    """Cycles of a TPU's core, as its compiler estimated them when it chose tilings."""

    def measure(line: str) -> int:
        found = re.search(r'"estimated_cycles":"(\d+)"', line)
        return int(found[1]) if found else 0

    return add_up(hlo, measure)
