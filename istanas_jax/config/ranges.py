"""What a value of a config may be: a range is a rule, with the words that say so.

`bounds` has the rule of each key.
"""

import math
from collections.abc import Callable, Container
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """What a value must be, and how to say so."""

    good: Callable[[Any], bool]
    words: str


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return is_whole(value) and abs(value) < 2**63


def whole(low: int, high: int) -> Rule:
    return Rule(
        lambda value: is_whole(value) and low <= value <= high,
        f"a whole number from {low:,} to {high:,}",
    )


def number(low: float, high: float) -> Rule:
    """A number from low to high, both included."""
    return Rule(
        lambda value: is_number(value) and low <= value <= high,
        f"a number from {low:g} to {high:,g}",
    )


def positive(high: float) -> Rule:
    """A number above 0, up to high."""
    return Rule(
        lambda value: is_number(value) and 0 < value <= high,
        f"a number above 0, at most {high:,g}",
    )


def each(rule: Rule, lengths: Container[int] = range(10_000)) -> Rule:
    """Several values, each following this rule; `lengths` says how many there may be."""
    return Rule(
        lambda values: (
            isinstance(values, tuple | list)
            and len(values) in lengths
            and all(map(rule.good, values))
        ),
        f"some values, each {rule.words}",
    )


def one_of(*names: str) -> Rule:
    return Rule(lambda value: value in names, f"one of {', '.join(names)}")


def _is_range(text: str) -> bool:
    numbers = text.split(":")
    if len(numbers) != 2 or not all(n.isdecimal() and len(n) < 10 for n in numbers):
        return False
    return int(numbers[0]) < int(numbers[1])


FRACTION = Rule(lambda value: is_number(value) and 0 <= value < 1, "from 0 to below 1")
YES_OR_NO = Rule(lambda value: isinstance(value, bool), "True or False")
TEXT = Rule(lambda value: isinstance(value, str), "a text")
STEPS = Rule(
    lambda value: value == "" or (isinstance(value, str) and _is_range(value)),
    "FIRST:LAST, two numbers of steps of which the second is larger, as 10:20",
)
EVERY = Rule(
    lambda value: value in ("epoch", "step") or (str(value).isdecimal() and 0 < int(value) < 2**31),
    '"epoch", "step" or a number of steps',
)
