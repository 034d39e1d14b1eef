import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest

from istanas_jax.look.curves import write_curves

NS = "{http://www.w3.org/2000/svg}"


def run(phase, epochs=4, **more):
    return [
        {"phase": phase, "step": 10 * epoch, "epoch": epoch, "loss": 1 / epoch, "accuracy": 0.1}
        | {key: value(epoch) for key, value in more.items()}
        for epoch in range(1, epochs + 1)
    ]


@pytest.fixture
def texts(tmp_path):
    def drawn(rows):
        write_curves(rows, tmp_path / "curves.svg")
        assert [path.name for path in tmp_path.iterdir()] == ["curves.svg"]
        root = ET.parse(tmp_path / "curves.svg").getroot()
        return [text.text for text in root.iter(f"{NS}text")]

    return drawn


def test_panels_only_for_what_there_is(texts):
    shown = texts(run("search 0"))
    assert shown.count("loss") == shown.count("accuracy (%)") == shown.count("search") == 1
    assert {"learning rate", "distance of z", "held-out", "step", "search 0"}.isdisjoint(shown)
    rows = run("search 0", distance=lambda epoch: [epoch, 2.0], heldout_accuracy=lambda _: 0.2)
    shown = texts(rows + run("search 1") + run("retrain 0", learning_rate=lambda _: 0.1))
    for once in ("distance of z", "learning rate", "search 0", "search 1", "held-out", "retrain"):
        assert shown.count(once) == 1, once
    assert shown.count("loss") == shown.count("epoch") == 2
    assert "retrain 0" not in shown


def test_steps_where_epochs_do_not_tell_rows_apart(texts):
    rows = run("search 0")
    assert "epoch" in texts([*rows, {"phase": "search 0", "step": 40, "distance": []}])
    assert "step" in texts([*rows, {"phase": "search 0", "step": 45, "loss": 1.0}])
    assert "step" in texts([*rows, rows[-1] | {"step": 45}])


def test_what_is_no_number_leaves_a_gap(texts):
    rows = run("search 0", distance=lambda _: ["inf", "nan"])
    rows[1]["loss"], rows[2]["loss"] = "nan", None
    assert "loss" in texts(rows)
    assert "loss" in texts(rows[1:2])


def test_same_rows_same_bytes_and_nothing_changed_elsewhere(tmp_path):
    rows = run("search 0", distance=lambda epoch: np.full((2, 4), epoch).tolist())
    before = dict(matplotlib.rcParams)
    for name in ("a.svg", "b.svg"):
        write_curves(rows, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert b"<dc:date>" not in (tmp_path / "a.svg").read_bytes()
    assert dict(matplotlib.rcParams) == before


def test_nothing_to_draw(tmp_path):
    write_curves([], tmp_path / "curves.svg")
    write_curves([{"phase": "search 0", "step": 1, "seconds": 3.0}], tmp_path / "curves.svg")
    assert not list(tmp_path.iterdir())
