"""Pages of runs that are going on, were killed, or left odd rows."""

import fcntl
import json

import pytest
from report_runs import config, epochs_of, make_run, read, recoveries, write_rows

from istanas_jax.look.report import run_page
from istanas_jax.look.report.facts import gather


def test_run_still_going(tmp_path):
    run = make_run(tmp_path / "run", finished=False)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"phase": "retrain 0", "st')  # a line that is being written
    with open(run / "replay.jsonl", "a") as file:
        file.write('{"phase": "search 0", "z": [[[0.1, ')
    with open(run / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        page = read(run_page.write(run))
        assert '<span class="state running">running</span>' in page.text
    assert '<span class="state stopped">not finished</span>' in read(run_page.write(run)).text
    assert "<dt>epochs of retrain 0</dt><dd>2 of 4</dd>" in page.text
    assert "export" not in page.data
    assert len(page.json["replays"][0]["frames"]) == 13


def test_searched_and_not_trained_yet(tmp_path):
    run = make_run(tmp_path / "run", finished=False)
    write_rows(run / "metrics.jsonl", epochs_of("search 0", 4))
    assert gather(run).state == "searched"


@pytest.mark.parametrize("first", [False, True])
def test_killed_early(tmp_path, first):
    """Only the config is there, or also the first row of the replay."""
    (tmp_path / "config.json").write_text(json.dumps(config()))
    if first:
        rows = recoveries(0)[:1]
        del rows[0]["distance"], rows[0]["kkt"], rows[0]["budget_decided"]
        write_rows(tmp_path / "replay.jsonl", rows)
    page = read(run_page.write(tmp_path))
    assert "not finished" in page.text and "No epoch has come to its end yet" in page.text
    assert ("No architecture has been recovered yet" in page.text) != first
    assert ("There is no replay" in page.text) != first


def test_odd_rows_do_not_lose_the_page(tmp_path):
    run = make_run(tmp_path / "run")
    rows = recoveries(0)
    rows[2]["z"][0][0][3], rows[2]["distance"][0][0] = "nan", "inf"
    write_rows(run / "replay.jsonl", rows)
    odd = epochs_of("search 0", 3)
    odd[1] |= {"loss": "nan", "accuracy": None}
    write_rows(run / "metrics.jsonl", odd)
    frame = read(run_page.write(run)).json["replays"][0]["frames"][2]
    assert frame["distance"][0][0] is None
    write_rows(run / "replay.jsonl", [{"phase": "search 0", "step": 0}])
    assert "replay.jsonl cannot be read: a row has no z." in run_page.write(run).read_text()
    write_rows(run / "replay.jsonl", [recoveries(0)[0] | {"coefficients": [[], []]}])
    assert "The rows of the replay are not as expected" in run_page.write(run).read_text()
    (run / "replay.jsonl").write_text("no JSON\n{}\n")
    assert "replay.jsonl cannot be read" in run_page.write(run).read_text()
