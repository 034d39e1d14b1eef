"""The text forms of a genotype, JSON and what DARTS prints, read into plain values.

Text is parsed and never evaluated. What the values mean is checked by `Genotype`.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Iterable
from typing import Any

from istanas_jax.space.genotype_checks import GenotypeError, show

# A genotype takes about 1,000 characters; far longer texts could exhaust Python's parser.
MAX_TEXT = 20_000


def read_json(text: str) -> dict[str, Any]:
    text = _check_text(text)
    try:
        content = json.loads(text, object_pairs_hook=_unique)
    except GenotypeError:
        raise
    except RecursionError:
        raise GenotypeError("not a genotype in JSON: nested too deeply") from None
    except ValueError as error:
        raise GenotypeError(f"not a genotype in JSON: {error}") from None
    if not isinstance(content, dict):
        raise GenotypeError(f"not a genotype in JSON: expected an object, found {show(content)}")
    return content


def read_darts(text: str) -> dict[str, Any]:
    """Read `Genotype(normal=[('skip_connect', 0), ...], ...)`."""
    text = _check_text(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape or literal in the text
            call = ast.parse(text.strip(), mode="eval").body
    except (RecursionError, MemoryError):
        raise GenotypeError("not a genotype in DARTS text: nested too deeply") from None
    except (SyntaxError, ValueError) as error:
        reason = getattr(error, "msg", error)
        raise GenotypeError(f"not a genotype in DARTS text: {reason}") from None
    match call:
        case ast.Call(func=ast.Name(id="Genotype"), args=[], keywords=keywords):
            pairs = [(keyword.arg or "**", _literal(keyword.value)) for keyword in keywords]
            return _unique(pairs)
    raise GenotypeError(
        "not a genotype in DARTS text: expected Genotype(normal=..., normal_concat=..., "
        "reduce=..., reduce_concat=...)"
    )


def _check_text(text: str) -> str:
    if not isinstance(text, str):
        raise GenotypeError(f"expected a genotype as text, found {show(text)}")
    if len(text) > MAX_TEXT:
        raise GenotypeError(f"the text is longer than {MAX_TEXT:,} characters: not a genotype")
    return text


def _literal(node: ast.expr) -> Any:
    """The value of a literal or of a range; anything else is refused, and nothing is run."""
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Constant(value=str() | int() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return -value
        case ast.Call(func=ast.Name(id="range"), args=[_, *_] as bounds, keywords=[]):
            values = [_literal(bound) for bound in bounds]
            try:
                return range(*values)
            except (TypeError, ValueError) as error:  # not one to three ints, or a step of 0
                raise GenotypeError(f"{_place(node)}: {error}") from None
    raise GenotypeError(
        f"{_place(node)}: expected a list, a string, a whole number or range(...), "
        f"found {type(node).__name__}"
    )


def _place(node: ast.expr) -> str:
    return f"DARTS text, line {node.lineno}, column {node.col_offset + 1}"


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    content = {}
    for key, value in pairs:
        if key in content:
            raise GenotypeError(f"the field {show(key)} is given twice")
        content[key] = value
    return content
