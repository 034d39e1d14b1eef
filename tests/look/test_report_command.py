"""`report`: the index, the comparison, where pages go, and what is refused."""

import os
import re
import time
from types import SimpleNamespace

import pytest
from report_runs import make_run, read

from istanas_jax.cli.main import main
from istanas_jax.look.report import compare, index, run_page
from istanas_jax.runs.folder import Workdir
from istanas_jax.schedules import results


def test_comparison(tmp_path, monkeypatch, capsys):
    runs = [make_run(tmp_path / name, epochs=epochs) for name, epochs in (("a", 3), ("b", 4))]
    monkeypatch.chdir(tmp_path)
    assert main(["report", *map(str, runs)]) == 0
    assert capsys.readouterr().out == "comparison.html\n"
    page = read(tmp_path / "comparison.html")
    loss = page.json["charts"][0]
    assert (loss["part"], loss["title"]) == ("search", "Loss")
    assert [line["run"] for line in loss["lines"]] == ["a", "b"]
    assert loss["lines"][0]["colour"] != loss["lines"][1]["colour"]
    assert page.text.count("istanas-cell") - page.text.count(".istanas-cell") == 4
    assert re.findall(r'<th scope="row">([\w.]+)</th><td>3</td><td>4</td>', page.text) == [
        "search.epochs",
        "train.epochs",
    ]
    compare.write([runs[0], runs[0]], tmp_path / "same.html")
    assert "The configs are the same" in (tmp_path / "same.html").read_text()


def test_index(tmp_path, capsys):
    for name in ("one", "two words"):
        make_run(tmp_path / name, finished=name == "one")
    (tmp_path / "other").mkdir()
    assert main(["report", str(tmp_path)]) == 0
    page = read(tmp_path / "index.html")
    assert [a["href"] for a in page.of("a")] == ["./one/report.html", "./two%20words/report.html"]
    assert [cell.get("data-value") for cell in page.of("td")][1::6] == ["finished", "stopped"]
    written = (tmp_path / "one" / "report.html").stat().st_mtime_ns
    index.write(tmp_path)
    assert (tmp_path / "one" / "report.html").stat().st_mtime_ns == written
    later = time.time() + 60
    os.utime(tmp_path / "one" / "metrics.jsonl", (later, later))
    index.write(tmp_path)
    assert (tmp_path / "one" / "report.html").stat().st_mtime_ns > written
    (tmp_path / "two words" / "metrics.jsonl").write_text("no JSON\n{}\n")
    index.write(tmp_path)
    page = read(tmp_path / "index.html")
    assert len(page.of("a")) == 1 and "two words: " in page.text


@pytest.mark.parametrize(
    "arguments, said",
    [(["nowhere"], "nowhere is not a folder"), (["."], "holds no run, nor folders of runs"),
     (["nowhere", "."], "nowhere holds no run: there is no config.json")],
)  # fmt: skip
def test_one_sentence_where_there_is_no_run(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_page_that_cannot_be_written_loses_no_run(tmp_path, monkeypatch):
    said = []
    open_run = SimpleNamespace(workdir=Workdir(make_run(tmp_path / "run")), say=said.append)
    results.write_report(open_run)
    assert said == [f"the report is {tmp_path / 'run' / 'report.html'}"]
    monkeypatch.setattr(run_page, "write", lambda path: 1 / 0)
    results.write_report(open_run)
    assert said[1].startswith("the report could not be written (division by zero); once that is ")
    assert said[1].endswith(f"python -m istanas_jax report {tmp_path / 'run'}")


def test_out(tmp_path):
    run = make_run(tmp_path / "run")
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").exists() and not (run / "report.html").exists()
