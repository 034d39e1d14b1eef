"""The replay in the page of a run: the rows of replay.jsonl, made small."""

import json
from itertools import pairwise

import pytest
from report_runs import make_run, read, recoveries

from istanas_jax.look.report import replay, run_page


def test_replay_holds_the_rows(run, page):
    replays = page.json["replays"]
    assert [replay["phase"] for replay in replays] == ["search 0", "search 1"]
    rows = recoveries(0)
    assert replays[0]["recoveries"] == len(rows) == len(replays[0]["frames"]) == 13
    for row, frame in zip(rows, replays[0]["frames"], strict=True):
        assert (row["step"], row["epoch"]) == (frame["step"], frame["epoch"])
        for cell in range(2):
            for node in range(4):
                z, sparse = row["z"][cell][node], frame["z"][cell][node]
                found = dict(zip(sparse[::2], sparse[1::2], strict=True))
                assert {i for i, value in enumerate(z) if value} == set(found)
                assert all(abs(z[i] - value) <= 6e-4 * abs(z[i]) for i, value in found.items())
                picks = frame["picks"][cell][node]
                assert picks == sorted(row["support"][cell][node])
                strongest = row["coefficients"][cell][node][0]
                place = picks.index(row["support"][cell][node][0])
                assert frame["w"][cell][node][place] == pytest.approx(strongest, rel=1e-3)


def test_replay_tells_what_changed_and_froze(page):
    frames = page.json["replays"][0]["frames"]
    assert frames[0]["changed"] == frames[0]["froze"] == []
    changes = 0
    for before, frame in pairwise(frames):
        for cell in range(2):
            for node in range(4):
                old, new = (set(f["picks"][cell][node]) for f in (before, frame))
                expected = (
                    [[cell, node, sorted(old - new), sorted(new - old)]] if old != new else []
                )
                assert [c for c in frame["changed"] if c[:2] == [cell, node]] == expected
                changes += len(expected)
                frozen = frame["frozen"][cell][node] > before["frozen"][cell][node]
                assert ([cell, node] in frame["froze"]) == frozen
    assert changes > 5
    assert any(frame["froze"] for frame in frames)


def test_each_different_cell_is_drawn_once(page):
    frames = [frame for replay in page.json["replays"] for frame in replay["frames"]]
    cells = {
        (cell, json.dumps(frame["picks"][cell]), frame["cells"][cell])
        for frame in frames
        for cell in range(2)
    }
    numbers = [number for *_, number in cells]
    assert sorted(numbers) == list(range(len(numbers)))
    assert len(page.of("template")) == len(numbers) < 2 * len(frames)
    assert "<style" not in page.text[page.text.index("<template") :]


@pytest.mark.slow
@pytest.mark.parametrize("nodes, per_epoch", [(4, 1), (4, 60), (8, 20)])
def test_small_enough(tmp_path, nodes, per_epoch):
    """50 epochs, also with thousands of recoveries and twice the nodes: under 3 MB."""
    run = make_run(tmp_path / "long", epochs=50, per_epoch=per_epoch, nodes=nodes)
    page = read(run_page.write(run))
    assert len(page.text.encode()) < 3_000_000
    (replay,) = page.json["replays"]
    rows = recoveries(0, epochs=50, per_epoch=per_epoch, nodes=nodes)
    assert replay["recoveries"] == len(rows)
    shown, frames = [frame["step"] for frame in replay["frames"]], len(replay["frames"])
    assert shown[0] == rows[0]["step"] and shown[-1] == rows[-1]["step"]
    assert shown == sorted(set(shown))
    froze = sum(len(frame["froze"]) for frame in replay["frames"])
    assert froze == sum(map(sum, rows[-1]["frozen"]))
    assert frames == len(rows) if per_epoch == 1 else 100 < frames < len(rows)
    if per_epoch > 1:
        assert f"the {frames:,} most telling of {len(rows):,} rows" in page.text


def test_long_lived_changes_are_kept_first():
    rows = recoveries(0, epochs=2, per_epoch=3, nodes=1)
    for number, row in enumerate(rows):
        row["step"], row["frozen"] = [0, 10, 20, 30, 80, 90, 100][number], [[False], [False]]
        row["support"] = [[[number, 13]], [[0, 1]]]
    kept = replay.choose(rows, replay.Drawings(), frames=3, size=10**6)
    assert [row["step"] for row in kept] == [0, 30, 100]
    assert replay.choose(rows, replay.Drawings(), frames=0, size=0) == [
        rows[0],
        rows[-1],
    ]


def test_the_judge_is_beside_the_replay(tmp_path, page):
    """With what it is; cells that it does not know have no curve, and the page says so."""
    for row, frame in zip(recoveries(0), page.json["replays"][0]["frames"], strict=True):
        assert frame["percentile"] == row["percentile"] is not None
        assert frame["free"] == row["weight_free"]
    assert "a regression on 10,307 cells that others trained" in page.json["judge"]
    assert "cannot judge collapsed cells" in page.text[page.text.index('id="replay"') :]
    small = read(run_page.write(make_run(tmp_path / "small", nodes=2)))
    assert all(frame["percentile"] is None for frame in small.json["replays"][0]["frames"])
    assert "There is no percentile by the judge, which knows only cells of 4 nodes" in small.text
    file = tmp_path / "small" / "replay.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:  # of an earlier version
        del row["weight_free"]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    old = read(run_page.write(tmp_path / "small"))
    assert old.json["replays"][0]["frames"][0]["free"] is None


def test_connections_without_weights_are_a_chart(page):
    (chart,) = [c for c in page.json["charts"] if c["title"] == "Connections without weights"]
    first = [line for line in chart["lines"] if line["phase"] == "search 0"]
    assert {line["name"]: line["y"] for line in first} == {
        "normal cell": [1, 2, 3, 4],
        "reduction cell": [2, 2, 2, 2],
    }
