import random
import re
import xml.etree.ElementTree as ET
from itertools import combinations

import numpy as np
import pytest

from istanas_jax.look import colours, drawing
from istanas_jax.look.drawing import cell_svg, write_cells
from istanas_jax.space import genotype
from istanas_jax.space.connections import CELL_TYPES
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.operations import BY_NAME

NS = "{http://www.w3.org/2000/svg}"


def random_genotype(seed):
    rng = random.Random(seed)
    s = rng.randint(1, 4)

    def cell():
        nodes = rng.randint(1, 8)
        connections = [
            [(rng.choice(tuple(BY_NAME)), rng.randrange(node + 2)) for _ in range(s)]
            for node in range(nodes)
        ]
        return connections, rng.sample(range(2, nodes + 2), rng.randint(1, nodes))

    return Genotype(*cell(), *cell())


CELLS = {
    f"{name}-{cell_type}": (cells, cell_type)
    for name, cells in genotype.published().items()
    for cell_type in CELL_TYPES
} | {f"random{seed}": (random_genotype(seed), CELL_TYPES[seed % 2]) for seed in range(100)}


def text_box(element):
    """(left, top, right, bottom), as far as a text can reach in any usual font."""
    size = float(element.get("font-size"))
    width, x = 0.62 * size * len(element.text), float(element.get("x"))
    left = x - width / 2 if element.get("class") in ("label", "name") else x
    baseline = float(element.get("y"))
    return left, baseline - 0.8 * size, left + width, baseline + 0.25 * size


def rect_box(element):
    x, y, width, height = (float(element.get(key)) for key in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def inside(one, other):
    return other[0] <= one[0] and other[1] <= one[1] and one[2] <= other[2] and one[3] <= other[3]


def texts(root, *classes):
    return [text for text in root.iter(f"{NS}text") if text.get("class") in classes]


def nodes(root):
    return [rect for rect in root.iter(f"{NS}rect") if (rect.get("class") or "").startswith("node")]


def lines(root, style):
    """Per edge its points: what is drawn from M over C (cubic curves) and H."""
    for group in root.iter(f"{NS}g"):
        if group.get("class") == style:
            points = []
            for command, rest in re.findall(r"([MCH])([^MCH]*)", group.find(f"{NS}path").get("d")):
                numbers = np.array([float(number) for number in rest.split()])
                if command == "H":
                    numbers = np.array([numbers[0], points[-1][1]])
                start = points[-1] if points else numbers
                if command == "C":
                    control = np.stack([start, *numbers.reshape(3, 2)])
                    t = np.linspace(0, 1, 30)[:, None]
                    weights = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3]
                    points += list(sum(w * c for w, c in zip(weights, control, strict=True)))
                else:
                    points += list(np.linspace(start, numbers, 30))
            yield np.array(points)


@pytest.mark.parametrize("case", CELLS)
def test_nothing_overlaps(case):
    cells, cell_type = CELLS[case]
    root = ET.fromstring(cell_svg(cells, cell_type))
    pills = [rect for rect in root.iter(f"{NS}rect") if rect.get("class") == "page pill"]
    labels = texts(root, "label")
    assert all(
        inside(text_box(label), rect_box(pill)) for label, pill in zip(labels, pills, strict=True)
    )
    names = [text_box(text) for text in texts(root, "name", "index")]
    assert all(any(inside(name, rect_box(node)) for node in nodes(root)) for name in names)
    boxes = [*map(rect_box, pills), *map(rect_box, nodes(root))]
    boxes += map(text_box, texts(root, "head", "note"))
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    page = (0, 0, float(root.get("width")), float(root.get("height")))
    assert all(inside(box, page) for box in boxes)

    def crossed(points, box):
        x, y = points.T
        return bool(np.any((x > box[0]) & (x < box[2]) & (y > box[1]) & (y < box[3])))

    for points in lines(root, "operation"):  # over its own name, and nothing else
        assert sum(crossed(points, box) for box in boxes) == 1
    for points in lines(root, "output"):
        assert not any(crossed(points, box) for box in boxes)


@pytest.mark.parametrize("case", list(CELLS)[::2])
def test_every_connection_is_there(case):
    cells, cell_type = CELLS[case]
    name = "normal" if cell_type == "normal" else "reduce"
    cell, concat = getattr(cells, name), getattr(cells, f"{name}_concat")
    root = ET.fromstring(cell_svg(cells, cell_type))
    shown = sorted(text.text for text in texts(root, "label"))
    expected = [
        operation + " /2" * (cell_type == "reduction" and predecessor < 2)
        for node in cell
        for operation, predecessor in node
    ]
    assert shown == sorted(expected)
    assert len(list(lines(root, "output"))) == len(concat)
    assert len(nodes(root)) == len(cell) + 3
    paths = [points.round(1).tobytes() for points in lines(root, "operation")]
    assert len(set(paths)) == len(paths)  # two edges between the same nodes are two lines


def test_width_shows_the_size_of_a_coefficient_and_dashes_its_sign():
    cells = genotype.load("ISTA_twostage")
    coefficients = np.array([[0.1, -0.8], [0.2, 0.3], [0.0, 0.4], [0.5, 0.6]], np.float32)
    root = ET.fromstring(cell_svg(cells, "normal", coefficients=coefficients))
    groups = [group for group in root.iter(f"{NS}g") if group.get("class") == "operation"]
    drawn = {group.find(f"{NS}title").text: group.find(f"{NS}path") for group in groups}
    widths = {text: float(path.get("stroke-width")) for text, path in drawn.items()}
    by_size = sorted(widths, key=lambda text: abs(float(text.rsplit(" ", 1)[1])))
    assert sorted(widths, key=widths.get) == by_size
    assert widths["c_{k-1} to 0: dil_conv_3x3, coefficient -0.8"] == drawing.THICK
    dashed = [text for text, path in drawn.items() if path.get("stroke-dasharray")]
    assert dashed == ["c_{k-1} to 0: dil_conv_3x3, coefficient -0.8"]
    cell_svg(cells, "normal", coefficients=np.zeros((4, 2)))  # nothing to compare with
    for wrong in (coefficients[:3], coefficients[:, :1], coefficients * np.nan):
        with pytest.raises(ValueError, match="coefficients: expected"):
            cell_svg(cells, "normal", coefficients=wrong)


def test_one_colour_per_kind_of_operation():
    found = {operation: colours.colour_of(operation) for operation in tuple(BY_NAME)}
    assert found["sep_conv_3x3"] == found["sep_conv_7x7"] != found["conv_7x1_1x7"]
    assert len(set(found.values())) == len(colours.COLOURS)


def luminance(colour):
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [colours.LIGHT, colours.DARK])
def test_legible_on_light_and_dark_pages(theme):
    for colour in (*colours.COLOURS.values(), colours.GREY):
        assert contrast(colour, theme["page"]) >= 3, colour
    for ink in ("ink", "soft"):
        assert contrast(theme[ink], theme["page"]) >= 4.5
    assert contrast(theme["ink"], theme["node"]) >= 4.5
    assert theme["ink"] in cell_svg(genotype.load("SNAS"), "normal")


def test_described_for_those_who_do_not_see_it():
    svg = cell_svg(genotype.load("AmoebaNet_A"), "reduction")
    root = ET.fromstring(svg)
    assert root.find(f"{NS}title").text == "Reduction cell"
    assert root.find(f"{NS}desc").text.startswith("c_{k-2} to 0: avg_pool_3x3, stride 2. ")
    assert root.find(f"{NS}desc").text.endswith("concatenates nodes 1, 2, 4.")
    assert root.get("role") == "img"
    assert "prefers-color-scheme:dark" in svg
    assert svg == cell_svg(genotype.load("AmoebaNet_A"), "reduction")


def test_write_cells(tmp_path):
    cells = genotype.load("DARTS_V2")
    folder = tmp_path / "cells"
    paths = write_cells(cells, folder)
    assert [path.name for path in paths] == ["normal.svg", "reduction.svg"]
    assert paths[1].read_text() == cell_svg(cells, "reduction")
    pair = np.full((2, 4, 2), 0.5)
    write_cells(cells, folder, pair)
    assert paths[0].read_text() == cell_svg(cells, "normal", coefficients=pair[0])
    assert sorted(folder.iterdir()) == sorted(paths)


def test_unknown_cell_type():
    with pytest.raises(ValueError, match="unknown cell type 'reduce', expected one of normal"):
        cell_svg(genotype.load("SNAS"), "reduce")
