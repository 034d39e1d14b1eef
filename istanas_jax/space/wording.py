"""Words for messages: what was found, and what may have been meant."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Sequence
from typing import Any


def show(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # Python refuses to print a number of thousands of digits
        return "a huge number"


def suggest(word: str, known: Sequence[str], n: int = 1) -> str:
    """The n nearest of the known words, or all of them if none is near, in brackets."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n)
    if close:
        return f" (did you mean {' or '.join(by_lower[name] for name in close)}?)"
    return f" (expected one of {', '.join(known)})"
