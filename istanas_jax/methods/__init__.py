"""Search methods by name; `contract` says what a method is.

A method is one class in a file of this folder. Its attributes `name`, by which a config chooses it,
and `title`, which tables call it by, make it one: nothing else has to know of it. They must be
plain strings, since they are read without importing the file, which would import jax. The method's
hyper-parameters, if any, are the part of a config that has its name: `config.search.darts`.
"""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ONE_STAGE = "one_stage"  # ISTA-NAS by the schedule of this name, where tables compare methods


class Entry(NamedTuple):
    """A method that was found, before its file is imported."""

    module: str
    cls: str
    title: str


def _declared(path: Path) -> Iterator[tuple[str, Entry]]:
    """The methods of a file: its classes that have a name."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            said = {
                part.targets[0].id: part.value.value
                for part in node.body
                if isinstance(part, ast.Assign)
                and isinstance(part.targets[0], ast.Name)
                and isinstance(part.value, ast.Constant)
            }
            if isinstance(name := said.get("name"), str):
                yield name, Entry(path.stem, node.name, said.get("title", name))


def _all_methods() -> dict[str, Entry]:
    files = sorted(Path(__file__).parent.glob("*.py"))
    found = sorted(entry for file in files for entry in _declared(file))
    return dict(sorted(found, key=lambda entry: entry[0] != "ista"))  # ISTA-NAS comes first


METHODS = _all_methods()


def find_method(name: str) -> type:
    """The class of a method; its file is imported only when it is asked for."""
    if name not in METHODS:
        raise ValueError(f"search.method is {name!r}, there are: {', '.join(METHODS)}")
    entry = METHODS[name]
    return getattr(importlib.import_module(f"{__name__}.{entry.module}"), entry.cls)


def title_of(name: str) -> str:
    """What tables call a method; given cells stand beside methods under the name they have."""
    if name == ONE_STAGE:
        return "one-stage ISTA-NAS"
    return METHODS[name].title if name in METHODS else name
