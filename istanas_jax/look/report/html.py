"""HTML for the pages of `report`: tags that escape what is in them, and the page around them.

A page needs nothing but itself: style and scripts of `page/` are in it, and its policy
forbids every request.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any

from istanas_jax import __version__
from istanas_jax.look import colours

SCRIPTS = ("charts.js", "replay.js", "page.js")
# Colours of lines and runs, neighbours unlike each other.
COLOURS = [
    colours.COLOURS[name] for name in ("blue", "vermilion", "green", "purple", "orange", "sky blue")
]
EMPTY = ("input", "br", "meta")  # elements without an end tag


class Html(str):
    """Text that is HTML already; any other string is escaped where it is put in."""

    __slots__ = ()


def tag(name: str, *content: Any, **attributes: Any) -> Html:
    """An element. `class_` is class, `data_node` is data-node; an attribute of None is left out."""
    pairs = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    inside = "".join(
        f" {key}" if value is True else f' {key}="{html.escape(str(value))}"'
        for key, value in pairs.items()
        if value is not None and value is not False
    )
    end = "" if name in EMPTY else f"{join(content)}</{name}>"
    return Html(f"<{name}{inside}>{end}")


def join(parts: Iterable[Any]) -> Html:
    return Html(
        "".join(part if isinstance(part, Html) else html.escape(str(part)) for part in parts)
    )


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]], **attributes: Any) -> Html:
    """A table; the first cell of a row is its heading. Where it is too wide it scrolls.

    A cell may be a pair of what is shown and what it is sorted by.
    """
    header = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head)))
    lines = []
    for first, *rest in rows:
        pairs = [cell if isinstance(cell, tuple) else (cell, None) for cell in rest]
        cells = [tag("td", shown, data_value=value) for shown, value in pairs]
        lines.append(tag("tr", tag("th", first, scope="row"), *cells))
    return tag("div", tag("table", header, tag("tbody", *lines), **attributes), class_="scroll")


def section(title: str, *content: Any, id: str, lead: Any = None) -> Html:
    parts = [tag("h2", title, id=f"{id}-title")]
    if lead:
        parts.append(tag("p", lead, class_="lead"))
    return tag("section", *parts, *content, id=id, aria_labelledby=f"{id}-title")


def fold(title: str, *content: Any, id: str, open: bool = False) -> Html:
    """A part that can be opened."""
    return tag("details", tag("summary", title), *content, id=id, open=open or None)


def copyable(label: str, text: str, id: str) -> Html:
    """Text with a button that copies it."""
    button = tag("button", "Copy", type="button", class_="copy", data_copy=id)
    head = tag("div", tag("span", label, class_="label"), button, class_="copy-head")
    return tag("div", head, tag("pre", text, id=id, tabindex="0"), class_="copyable")


def legend(operations: Iterable[str]) -> Html:
    """The colours of the operations that a search chooses from."""
    by_colour: dict[str, list[str]] = {}
    for operation in operations:
        by_colour.setdefault(colours.colour_of(operation), []).append(operation)
    items = [
        tag("li", tag("span", class_="swatch", style=f"background:{colour}"), " / ".join(names))
        for colour, names in by_colour.items()
    ]
    return tag("ul", *items, class_="legend", aria_label="Colours of the operations")


def page(title: str, body: Html, data: dict) -> str:
    """The whole page, as text; `data` is what its scripts read."""
    folder = resources.files("istanas_jax.look.report") / "page"
    read = lambda name: (folder / name).read_text(encoding="utf-8")  # noqa: E731
    parts = {
        "title": html.escape(title),
        "style": _colours() + read("style.css"),
        "body": body,
        "data": embed({"colours": COLOURS, **data}),
        "page": html.escape(data["page"]),
        "script": "\n".join(map(read, SCRIPTS)),
        "version": __version__,
    }
    # In one go, so that inserted text is not searched for placeholders.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], read("page.html"))


def embed(data: Any) -> str:
    """JSON for a script element, escaped so that no text in it can end the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _colours() -> str:
    """Colours of drawn cells: those of the page, which follow the system unless one is chosen."""

    def theme(colours: dict[str, str], scheme: str) -> str:
        return f"color-scheme:{scheme};" + ";".join(f"--{k}:{v}" for k, v in colours.items())

    light = colours.LIGHT | {"line": "#d1d9e0", "card": "#f6f8fa", "accent": "#0969da"}
    dark = colours.DARK | {"line": "#30363d", "card": "#151b23", "accent": "#4493f8"}
    light |= {"good": "#1a7f37", "warn": "#9a6700"}
    dark |= {"good": "#3fb950", "warn": "#d29922"}
    return (
        f":root{{{theme(light, 'light')}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{theme(dark, 'dark')}}}}}\n"
        f":root[data-theme=light]{{{theme(light, 'light')}}}\n"
        f":root[data-theme=dark]{{{theme(dark, 'dark')}}}\n"
    )
