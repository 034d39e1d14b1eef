"""Documented figures are those that their commands give, and programs are called programs."""

import pytest
from documents import documents
from places import ROOT

from istanas_jax.bench import documented
from istanas_jax.bench.documented import Entry, Figure
from istanas_jax.cli.main import main
from istanas_jax.plan import published_sizes

TEXT = "\n".join(document.read_text() for document in documents())
ENTRIES = documented.entries()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.line} {entry.figures[0][0]}")
def test_figures_are_documented_as_said(entry):
    (line,) = (line for line in TEXT.splitlines() if entry.line in line)
    for figure in entry.figures:
        assert figure.text in line, f"{entry.command} gives {figure.text}"


def test_sizes_are_what_describe_gives():
    """Sizes that need no compilation; `bench docs`, a documented command, runs one of them."""
    rows = {
        (row["name"], row["net"], row["one_stage"]): row for row in published_sizes.describe_all()
    }
    entries = [entry for entry in ENTRIES if entry.command.startswith("describe ")]
    assert len(entries) == 3
    for entry in entries:
        net = "imagenet" if "imagenet" in entry.command else "cifar"
        row = rows[entry.command.split()[1], net, "--one-stage" in entry.command]
        counted = tuple(figure for figure in entry.figures if figure.path in row)
        assert len(counted) >= 2
        found = list(documented.compare(entry._replace(figures=counted), row))
        assert all(figure["agrees"] for figure in found), found


def test_commands_are_measured_and_compared(monkeypatch, capsys):
    """A command that is run once for two entries, a figure that differs, and one that fails."""
    count = f"{published_sizes.describe_all()[0]['parameters']:,}"
    exact = (Figure("0/parameters", "{:,}", count),)
    twice = "describe --all --json"
    made_up = [
        Entry(twice, 1, "", exact),
        Entry(twice, 1, "", (exact[0]._replace(text="7"),)),
        Entry("describe NONE --json", 1, "", exact),
        Entry("never run", 5, "", exact),
    ]
    monkeypatch.setattr(documented, "entries", lambda: made_up)
    monkeypatch.chdir(ROOT)
    assert main(["bench", "docs", "--minutes", "2"]) == 1
    said = capsys.readouterr()
    assert said.err.count(twice) == 1
    assert said.out.count(count) == 3
    assert said.out.count("  differs\n") == 1
    assert "could not be measured: exit code 2: istanas: " in said.out
    assert said.out.endswith("1 agree, 2 do not\n")
    assert "never run" not in said.err
    assert main(["bench", "docs", "--only", "nothing"]) == 2


def test_times_may_differ_within_bounds():
    entry = Entry("x", 1, "", (Figure("s", "{:.1f} s", "2.0 s", 1000),), within=0.5)
    found = {ms: next(documented.compare(entry, {"s": ms / 1e6})) for ms in (1400, 2900, 3100)}
    assert {ms: row["agrees"] for ms, row in found.items()} == {1400: True, 2900: True, 3100: False}
    assert found[2900]["measured"] == "2.9 s"


@pytest.mark.parametrize(
    "command", ["run", "retrain", "search", "plan", "bench switch", "study curves", "predict"]
)
def test_help_says_that_files_are_programs(command, capsys):
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "program" in said
    assert "use only one that you trust" in said


def test_documents_say_that_files_are_programs():
    text = " ".join(TEXT.split())
    assert "A config file is a Python program, and naming it runs it: use only those" in text
    assert "`model.stablehlo` and `network.py` are programs" in text
