"""Cells for a terminal: in words, and as a drawing."""

from __future__ import annotations

from collections.abc import Sequence

from istanas_jax.space.connections import NUM_INPUTS
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.genotype_checks import Cell

LANES_WIDTH = 60  # columns for the lines of a drawing; notes stand to the right of them
WIDE, NARROW = 9, 4  # widths of a lane: with whole names, and the smallest


def state_names(num_nodes: int) -> list[str]:
    """Names of what may feed a node, by predecessor."""
    return ["c_{k-2}", "c_{k-1}", *(f"node {j}" for j in range(num_nodes))]


def describe_cells(genotype: Genotype) -> str:
    """Describe both cells, with a line per node."""
    lines = []
    for name, cell in (("normal", genotype.normal), ("reduction", genotype.reduce)):
        for j, line in enumerate(describe_cell(cell)):
            lines.append(f"  {name if j == 0 else '':9}  {line}")
    return "\n".join(lines)


def describe_cell(cell: Cell) -> list[str]:
    """Say what each node computes: `node 0 = skip_connect(c_{k-2}) + sep_conv_3x3(c_{k-1})`."""
    names = state_names(len(cell))
    return [
        f"node {j} = " + " + ".join(f"{op}({names[source]})" for op, source in node)
        for j, node in enumerate(cell)
    ]


def draw_cell(
    cell: Cell, concat: Sequence[int], notes: Sequence[Sequence[str]] | None = None
) -> str:
    """Draw a vertical line per state, an arrow per connection, and the inputs of the output.

    A line begins where its node does and ends where it is used last.

    Args:
      concat: the states that make the output.
      notes: a text per node and connection, put beside its operation.
    """
    names = state_names(len(cell))
    width = max(NARROW, min(WIDE, LANES_WIDTH // len(names)))
    if width < WIDE:
        names = ["k-2", "k-1", *map(str, range(len(cell)))]
    arrows = [
        (connection, j + NUM_INPUTS, notes[j][i] if notes else "")
        for j, node in enumerate(cell)
        for i, connection in enumerate(node)
    ]
    last = {source: row for row, ((_, source), _, _) in enumerate(arrows)}
    last |= dict.fromkeys(concat, len(arrows))
    lines = ["".join(f"{name:^{width}}" for name in names)]
    for row, ((operation, source), target, note) in enumerate(arrows):
        # A node's line goes on below its last arrow.
        begun = [x for x in range(target) if last.get(x, -1) >= row]
        lanes = _row(len(names), width, begun, source, target, ends=last[source] == row)
        lines.append(f"{lanes}  {operation:12}  {note}")
    lines.append(f"{_output_row(len(names), width, sorted(set(concat)))} output")
    return "\n".join(line.rstrip() for line in lines)


def _row(lanes: int, width: int, begun: list[int], source: int, target: int, *, ends: bool) -> str:
    """A row with one arrow across the lines that continue."""
    marks = ["│" if x in begun else " " for x in range(lanes)]
    for x in range(source + 1, target):
        marks[x] = "┼" if x in begun else "─"
    marks[source], marks[target] = "└" if ends else "├", "▶"
    return _join(marks, width, source, target)


def _output_row(lanes: int, width: int, concat: list[int]) -> str:
    """The row in which lines meet in the output."""
    marks = [" " if x < concat[0] else "┴" if x in concat else "─" for x in range(lanes)]
    marks[concat[0]] = "└"
    return f"{_join(marks, width, concat[0], lanes).rstrip(' ')}▶"


def _join(marks: list[str], width: int, begin: int, end: int) -> str:
    """Put each mark in the middle of its lane, and a line from the first to the last."""
    before, after = (width - 1) // 2, width // 2
    text = ""
    for x, mark in enumerate(marks):
        left = "─" if begin < x <= end else " "
        right = "─" if begin <= x < end else " "
        text += left * before + mark + right * after
    return text
