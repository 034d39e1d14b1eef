"""Draw the cells of a genotype as SVG files that need nothing else, for light and dark pages.

Time runs from left to right. Every connection ends in a straight piece before its node, and that
piece carries the operation's name; `cell_layout` keeps all other lines and nodes away from it.
"""

from __future__ import annotations

import math
import os
from xml.sax.saxutils import escape, quoteattr

from etils import epath

from istanas_jax.look.cell_layout import Box, Edge, lay_out
from istanas_jax.look.colours import DARK, GREY, LIGHT, colour_of
from istanas_jax.space.connections import CELL_TYPES, NUM_INPUTS, stride_of
from istanas_jax.space.genotype import Genotype
from istanas_jax.storage.files import write_whole

CHARACTER = 0.62  # width of a monospaced character, in units of the font's size
FONT, NOTE_FONT, HEAD_FONT = 12, 11, 15
PILL = 20  # height of an operation's name and the box around it
NODE_WIDTH, ARROW, GAP, MARGIN = 46, 9, 64, 18  # GAP: between two columns, where edges bend
THIN, THICK, PLAIN = 1.2, 6.0, 2.0  # widths of lines: least and most by coefficient, and without
STRIDE = " /2"


def cell_svg(genotype: Genotype, cell_type: str, *, coefficients=None, inline: bool = False) -> str:
    """One cell, "normal" or "reduction", as the text of an SVG file.

    Args:
      coefficients: array-like (nodes, s), in the genotype's order of connections (the weaker pick
        first): a line is as wide as abs(coefficient) is large, and dashed if it is negative.
      inline: leave out heading, notes and style, for a page that has them.
    """
    if cell_type not in CELL_TYPES:
        raise ValueError(
            f"unknown cell type {cell_type!r}, expected one of {', '.join(CELL_TYPES)}"
        )
    name = "normal" if cell_type == "normal" else "reduce"
    cell, concat = getattr(genotype, name), getattr(genotype, f"{name}_concat")
    edges = [
        Edge(connection.predecessor, j + NUM_INPUTS, connection.operation, coefficient)
        for j, (node, row) in enumerate(zip(cell, _rows(coefficients, cell), strict=True))
        for connection, coefficient in zip(node, row, strict=True)
    ]
    output = len(cell) + NUM_INPUTS
    edges += [Edge(node, output) for node in concat]
    drawn = _Drawing(lay_out(edges, output), edges, cell_type)
    return drawn.inline() if inline else drawn.svg()


def write_cells(
    genotype: Genotype, folder: str | os.PathLike, coefficients=None
) -> list[epath.Path]:
    """Write normal.svg and reduction.svg; `coefficients` is a pair, normal first."""
    folder = epath.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    pair = (None, None) if coefficients is None else coefficients
    paths = []
    for cell_type, values in zip(CELL_TYPES, pair, strict=True):
        text = cell_svg(genotype, cell_type, coefficients=values)
        paths.append(folder / f"{cell_type}.svg")
        write_whole(paths[-1], text.encode())
    return paths


def _rows(coefficients, cell) -> list[list[float | None]]:
    if coefficients is None:
        return [[None] * len(node) for node in cell]
    rows = [[float(value) for value in row] for row in coefficients]
    if [len(row) for row in rows] != [len(node) for node in cell]:
        raise ValueError(
            f"coefficients: expected {len(cell)} nodes of {len(cell[0])}, as the cell has"
        )
    if not all(math.isfinite(value) for row in rows for value in row):
        raise ValueError("coefficients: expected finite numbers")
    return rows


class _Drawing:
    """Gives every column its x, and writes the elements."""

    def __init__(self, columns: list[list[Box]], edges: list[Edge], cell_type: str):
        self.cell_type = cell_type
        self.edges = edges
        self.boxes = [box for column in columns for box in column]
        self.output = columns[-1][0].node
        given = [edge.coefficient for edge in self.edges if edge.coefficient is not None]
        self.notes = []
        if cell_type == "reduction":
            self.notes.append(f"{STRIDE.strip()}: stride 2, halves height and width")
        if given:
            self.notes.append("line width: size of the coefficient")
        if any(value < 0 for value in given):
            self.notes.append("dashed: negative")
        self.largest = max(map(abs, given), default=0.0) or 1.0

        self.span = {}  # box -> left and right x of its column
        x = MARGIN
        for number, column in enumerate(columns):
            hops = [hop for box in column if box.node is not None for hop in box.ins]
            labels = [_width(self.label(hop.edge)) for hop in hops if hop.edge.operation]
            before = max(labels, default=0) + ARROW + 5 if number else 0
            self.span |= dict.fromkeys(column, (x, x + before + NODE_WIDTH))
            x += before + NODE_WIDTH + GAP
        head = 2 * MARGIN + HEAD_FONT
        shift = head - min(box.y - box.height / 2 for box in self.boxes)
        for box in self.boxes:
            box.y += shift
        self.head, self.foot = head, max(box.y + box.height / 2 for box in self.boxes)
        self.right = x - GAP
        foot = self.foot
        self.note_y = [foot + MARGIN + 16 * (i + 0.5) for i in range(len(self.notes))]
        self.height = foot + MARGIN + 16 * len(self.notes) + (8 if self.notes else 0)
        widest = max((len(note) * CHARACTER * NOTE_FONT for note in self.notes), default=0)
        self.width = max(self.right, MARGIN + widest) + MARGIN

    def label(self, edge: Edge) -> str:
        stride = stride_of(edge.source, self.cell_type == "reduction")
        return edge.operation + STRIDE * (stride == 2)

    def name(self, node: int) -> str:
        if node < NUM_INPUTS:
            return f"c_{{k-{NUM_INPUTS - node}}}"
        return "c_{k}" if node == self.output else str(node - NUM_INPUTS)

    def svg(self) -> str:
        size = {"width": f"{self.width:.0f}", "height": f"{self.height:.0f}"}
        title = f"{self.cell_type.capitalize()} cell"
        operations, outputs = self.parts()
        concat = ", ".join(self.name(edge.source) for edge in outputs)
        sentences = [f"{self.sentence(edge)}." for edge in operations]
        sentences.append(f"The output c_{{k}} concatenates nodes {concat}.")
        lines = [
            _tag("title", escape(title), id=f"{self.cell_type}-title"),
            _tag("desc", escape(" ".join(sentences)), id=f"{self.cell_type}-desc"),
            _tag("style", _style()),
            _tag("rect", **size, rx=8, class_="page"),
            _text(MARGIN, MARGIN + HEAD_FONT / 2, escape(title), "head", HEAD_FONT),
            *self.shapes(),
            *(
                _text(MARGIN, y, escape(note), "note", NOTE_FONT)
                for note, y in zip(self.notes, self.note_y, strict=True)
            ),
        ]
        return _tag(
            "svg",
            "\n" + "\n".join(lines) + "\n",
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {size['width']} {size['height']}",
            class_="istanas-cell",
            role="img",
            aria_labelledby=f"{self.cell_type}-title {self.cell_type}-desc",
            **size,
        )

    def inline(self) -> str:
        """The drawing alone, without margins around it."""
        width, height = self.right - MARGIN + 4, self.foot - self.head + 4
        return _tag(
            "svg",
            "\n".join(self.shapes()),
            viewBox=f"{MARGIN - 2} {self.head - 2} {width:.0f} {height:.0f}",
            class_="istanas-cell",
            role="img",
            aria_label=f"{self.cell_type.capitalize()} cell",
            style=f"--width:{width:.0f}px",
        )

    def parts(self) -> tuple[list[Edge], list[Edge]]:
        """The edges with operations, and those to the output."""
        return [e for e in self.edges if e.operation], [e for e in self.edges if not e.operation]

    def shapes(self) -> list[str]:
        """Edges, then nodes, then names; the parts of an edge or node carry its number."""
        operations, outputs = self.parts()
        return [
            *(self.edge(edge) for edge in outputs),
            *(self.edge(edge, data_edge=number) for number, edge in enumerate(operations)),
            *(self.node(box) for box in self.boxes if box.node is not None),
            *(
                _tag("g", self.name_on(edge), data_edge=number)
                for number, edge in enumerate(operations)
            ),
        ]

    def sentence(self, edge: Edge) -> str:
        text = f"{self.name(edge.source)} to {self.name(edge.target)}"
        if not edge.operation:
            return text
        text += f": {edge.operation}"
        if self.label(edge) != edge.operation:
            text += ", stride 2"
        if edge.coefficient is not None:
            text += f", coefficient {edge.coefficient:.3g}"
        return text

    def edge(self, edge: Edge, **attributes) -> str:
        """The line, bending between columns and straight inside them, and its arrowhead."""
        x = self.span[edge.hops[0].left][1]
        path = [f"M{x:.1f} {edge.hops[0].start:.1f}"]
        for hop in edge.hops:
            left, right = self.span[hop.right]
            last = hop.right.node is not None
            middle, stop = (x + left) / 2, right - NODE_WIDTH - ARROW if last else right
            path.append(f"C{middle:.1f} {hop.start:.1f} {middle:.1f} {hop.end:.1f}")
            path.append(f"{left:.1f} {hop.end:.1f}H{stop:.1f}")
            x = right
        width, colour = THIN, GREY
        if edge.operation:
            width, colour = PLAIN, colour_of(edge.operation)
        if edge.coefficient is not None:
            width = THIN + (THICK - THIN) * abs(edge.coefficient) / self.largest
        y, half = edge.hops[-1].end, width / 2 + 3
        head = f"M{stop:.1f} {y - half:.1f}l{ARROW} {half:.1f}l{-ARROW} {half:.1f}z"
        dash = {"stroke_dasharray": "7 4"} if (edge.coefficient or 0) < 0 else {}
        return _tag(
            "g",
            _tag("title", escape(self.sentence(edge)))
            + _tag(
                "path",
                d=" ".join(path),
                fill="none",
                stroke=colour,
                stroke_width=f"{width:.2f}",
                **dash,
            )
            + _tag("path", d=head, fill=colour),
            class_="operation" if edge.operation else "output",
            **attributes,
        )

    def name_on(self, edge: Edge) -> str:
        """The operation's name on the straight end of its line, in a box that hides the line."""
        label, y = self.label(edge), edge.hops[-1].end
        left, right = self.span[edge.hops[-1].right]
        middle = (left + right - NODE_WIDTH - ARROW) / 2
        width = _width(label)
        box = _tag(
            "rect", x=f"{middle - width / 2:.1f}", y=f"{y - PILL / 2:.1f}", width=f"{width:.1f}",
            height=PILL, rx=PILL // 2, class_="page pill", stroke=colour_of(edge.operation),
        )  # fmt: skip
        return box + _text(middle, y, escape(label), "label", FONT)

    def node(self, box: Box) -> str:
        x = self.span[box][1] - NODE_WIDTH
        top = box.y - box.height / 2
        inner = box.node in range(NUM_INPUTS, self.output)
        shape = _tag(
            "rect", x=f"{x:.1f}", y=f"{top:.1f}", width=NODE_WIDTH, height=f"{box.height:.1f}",
            rx=10, class_="node" if inner else "node end", stroke=GREY,
        )  # fmt: skip
        name, middle = self.name(box.node), x + NODE_WIDTH / 2
        if inner:
            text = _text(middle, box.y, name, "name", 14)
        else:
            index = name[3:-1].replace("-", "\N{MINUS SIGN}")
            middle -= 4 * len(index) - 2
            text = _text(middle, box.y, "c", "name", 14)
            text += _text(middle + 5, box.y + 5, index, "index", 11)
        return _tag("g", shape + text, data_node=box.node)


def _width(label: str) -> float:
    return len(label) * CHARACTER * FONT + 12


def _style() -> str:
    def theme(colours):
        return (
            f".istanas-cell .page{{fill:{colours['page']}}}"
            f".istanas-cell .node{{fill:{colours['node']}}}"
            f".istanas-cell .end{{fill:{colours['page']}}}"
            f".istanas-cell text{{fill:{colours['ink']}}}"
            f".istanas-cell .note{{fill:{colours['soft']}}}"
        )

    return (
        ".istanas-cell text{font-family:system-ui,'DejaVu Sans',sans-serif}"
        ".istanas-cell .head{font-weight:600}"
        ".istanas-cell .label,.istanas-cell .name{text-anchor:middle}"
        ".istanas-cell .label{font-family:ui-monospace,Consolas,'DejaVu Sans Mono',monospace}"
        f"{theme(LIGHT)}@media (prefers-color-scheme:dark){{{theme(DARK)}}}"
    )


def _text(x: float, y: float, content: str, style: str, size: float) -> str:
    """Text centred on y by the font's size, since renderers disagree on dominant-baseline."""
    return _tag(
        "text", content, x=f"{x:.1f}", y=f"{y + 0.35 * size:.1f}", class_=style, font_size=size
    )


def _tag(name: str, content: str = "", **attributes) -> str:
    pairs = {key.rstrip("_").replace("_", "-"): str(value) for key, value in attributes.items()}
    inside = "".join(f" {key}={quoteattr(value)}" for key, value in pairs.items())
    return f"<{name}{inside}>{content}</{name}>" if content else f"<{name}{inside}/>"
