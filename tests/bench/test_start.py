"""`bench start`: the commands of a user, timed in processes of their own."""

import json

import pytest
from tiny_space import TINY_SPACE

from istanas_jax.bench.costs import start
from istanas_jax.cli.main import main

TINY = [f"--config.{key}" for key in (*TINY_SPACE, "search.cells=1", "train.cells=1")]


@pytest.mark.slow
def test_help_two_runs_and_inspect(capsys):
    assert main(["bench", "start", "--config", "digits:tiny", *TINY, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert 0 < results["help_s"] < results["second_s"]
    assert results["second_s"] < results["first_s"]  # its programs were there
    assert results["programs_mb"] > 0 and results["inspect_s"] > 0
    text = start.table(results)
    assert f"first run, to its first step  {results['first_s']:.1f}" in text


def test_a_run_that_does_not_start(monkeypatch):
    monkeypatch.setattr(start, "_seconds", lambda *_: 0.0)
    with pytest.raises(ValueError, match=r"ended before its first step: .*nowhere"):
        start.run("nowhere")


def test_bad_input(capsys):
    assert main(["bench", "start", "--config", "digits", "--config.search.nothing=1"]) == 2
    assert "nothing" in capsys.readouterr().err
