"""Drawn cells, read back from the page."""

from dataclasses import replace

import pytest

from istanas_jax.look.ascii_cells import draw_cell
from istanas_jax.space.genotype import published, random_genotype
from istanas_jax.space.spaces import DARTS


def read_drawing(text: str) -> tuple[list, list[int]]:
    """Arrows (operation, from, to) and the output's states, by where they are on the page."""
    head, *arrows, output = text.splitlines()
    width = 9 if "node 0" in head else max(4, min(9, 60 // len(head.split())))
    middle = lambda column: (column - (width - 1) // 2) / width  # noqa: E731
    found = []
    for line in arrows:
        begin = max(line.rfind("├"), line.rfind("└"))
        found.append((line.split("▶")[1].split()[-1], middle(begin), middle(line.index("▶"))))
    return found, [middle(i) for i, mark in enumerate(output) if mark in "└┴"]


@pytest.mark.parametrize("seed", range(8))
def test_drawing_is_the_cell(seed):
    """Random cells, and the published ones, of which some have nodes that are not in the output."""
    genotypes = [
        random_genotype(seed, replace(DARTS, nodes=n, s=s)) for n in (1, 4, 9) for s in (1, 2, 3)
    ]
    for genotype in [*genotypes, *list(published().values())[seed::8]]:
        for cell, concat in (
            (genotype.normal, genotype.normal_concat),
            (genotype.reduce, genotype.reduce_concat),
        ):
            arrows, output = read_drawing(draw_cell(cell, concat))
            assert arrows == [(op, x, j + 2) for j, node in enumerate(cell) for op, x in node]
            assert output == sorted(set(concat))
