"""Bad input is answered in one sentence with exit code 2, and a run that cannot begin is undone."""

import pytest

from istanas_jax.cli import main
from istanas_jax.config.files import load_config
from istanas_jax.runs.folder import Workdir, WorkdirError

DIGITS = "configs/digits.py:tiny"
GOOD = """from ml_collections import ConfigDict

def get_config(variant=""):
    config = ConfigDict({"schedule": "two_stage"})
    %s
    return config
"""
BROKEN = {
    "syntax": ("def get_config(:\n", ", line 1: SyntaxError: invalid syntax"),
    "indent": ("def get_config(v=''):\n  a\n\tb\n", ", line 3: TabError"),
    "empty": ("", "defines no function get_config(variant)"),
    "no_function": ("get_config = 3\n", "defines no function get_config(variant)"),
    "name": (GOOD % "config.seed = sed", ", line 5: NameError: name 'sed' is not defined"),
    "import": ("\nimport no_such_module\n", ", line 2: ModuleNotFoundError: No module named"),
    "attribute": (GOOD % "config.search.epochs = 3", ", line 5: AttributeError"),
    "zero": (GOOD % "config.seed = 1 // 0", ", line 5: ZeroDivisionError"),
    "value": (GOOD % "config.seed = int('x')", ", line 5: invalid literal for int()"),
    "library": (GOOD % "__import__('json').loads('{')", ", line 5: JSONDecodeError"),
    "refusal": (GOOD % "raise ValueError('not on a Monday')", "refusal.py: not on a Monday"),
    "exit": (GOOD % "raise SystemExit(3)", ", line 5: SystemExit: 3"),
    "endless": (GOOD % "get_config()", "RecursionError"),
    "dict": ("def get_config(variant=''):\n    return {}\n", "returns a value of type dict"),
    "nothing": ("def get_config(variant=''):\n    pass\n", "returns nothing, it must be"),
    "arguments": ("def get_config(a, b):\n    pass\n", "TypeError: get_config() missing 2"),
    "binary": ("\0\0", "null bytes"),
}


def refused(capsys, *argv) -> str:
    """The one sentence that a command ends with."""
    assert main.main([str(argument) for argument in argv]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("istanas: ")
    assert said.err.count("\n") == 1
    assert said.out == ""
    return said.err


@pytest.mark.parametrize("name", BROKEN)
def test_broken_config_files(name, tmp_path, capsys):
    text, sentence = BROKEN[name]
    file, run = tmp_path / f"{name}.py", tmp_path / "run"
    file.write_text(text)
    said = refused(capsys, "run", "--config", file, "--workdir", run)
    assert f"{name}.py" in said and sentence in said
    assert not run.exists()


def test_a_broken_file_beside_a_config_is_named(tmp_path, capsys):
    (tmp_path / "own.py").write_text("import shared_numbers_of_own\n")
    (tmp_path / "shared_numbers_of_own.py").write_text("\n\nx = y\n")
    said = refused(capsys, "run", "--config", tmp_path / "own.py", "--workdir", tmp_path / "run")
    assert "line 3 of " in said and "shared_numbers_of_own.py: NameError" in said


@pytest.mark.parametrize("error", [TypeError, ValueError, KeyboardInterrupt, OSError])
def test_a_run_that_cannot_begin_leaves_nothing(error, tmp_path):
    config = load_config(DIGITS)
    workdir = Workdir.open(tmp_path / "a" / "b" / "run", config)
    with pytest.raises(error), workdir.work(config):
        workdir.write("started.json", {})
        workdir.write("genotype.json", {})
        for folder in ("cells", "checkpoints/search_0", "tensorboard/search 0"):
            (workdir / folder).mkdir(parents=True)
        (workdir / "cells" / "normal.svg").write_text("<svg/>")
        (workdir / ".started.json.77").write_text("{")
        (workdir / "metrics.jsonl").write_text("")
        raise error("something else")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sign", ["metrics.jsonl", "checkpoints/search_0/40/about"])
def test_a_run_that_has_begun_stays(sign, tmp_path):
    config = load_config(DIGITS)
    workdir = Workdir.open(tmp_path / "run", config)
    with pytest.raises(TypeError), workdir.work(config):
        (workdir / sign).parent.mkdir(parents=True, exist_ok=True)
        (workdir / sign).write_text("{}\n")
        raise TypeError
    assert workdir.read("config.json") is not None
    assert (workdir / sign).exists()


def test_foreign_files_in_the_folder_stay(tmp_path):
    config = load_config(DIGITS)
    (tmp_path / "run").mkdir()
    workdir = Workdir.open(tmp_path / "run", config)
    with pytest.raises(TypeError), workdir.work(config):
        (tmp_path / "run" / "thesis.tex").write_text("years of work")
        raise TypeError
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]


def test_a_bug_of_ours_is_called_so(monkeypatch, tmp_path, capsys):
    def broken(*_):
        raise TypeError("no such attribute")

    monkeypatch.setattr(main, "_describe", broken)
    assert main.main(["describe", "ISTA_twostage"]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said and "TypeError: no such attribute" in said
    assert said.splitlines()[-1].startswith("istanas: TypeError: this is a bug in istanas_jax")


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "--config", DIGITS, "--workdir", "http://host/run"],
        ["report", "http://host/run"],
        ["inspect", "http://host/run"],
        ["export", "http://host/run", "--out", "out"],
        ["predict", "http://host/run", __file__],
    ],
)
def test_addresses_that_are_no_folders(argv, capsys):
    assert "http://host/run cannot be used: give a path of this machine" in refused(capsys, *argv)


@pytest.mark.parametrize("torn", ["", '{"seed": 0, "gen', "[1]", "null", "[" * 100_000, "\xff\0"])
@pytest.mark.parametrize("name", ["config.json", "search_0.json", "result.json"])
def test_torn_json_files_are_named(name, torn, tmp_path):
    (tmp_path / name).write_text(torn, encoding="latin-1")
    with pytest.raises(WorkdirError) as error:
        Workdir(tmp_path).read(name)
    remedy = "restore it from a copy" if name == "config.json" else "delete it, and the command"
    assert f"{name} is damaged, it holds no JSON object: {remedy}" in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("config.json", '{"search": {"runs": 1e30}}', "search.runs is not a whole number from 1"),
        ("config.json", '{"train": {"channels": 4}}', "train.cells is missing"),
        ("search_0.json", "{}", "genotype is missing"),
        ("search_2_stage_1.json", '{"genotype": {}}', "genotype is not a genotype"),
        ("retrain_0.json", '{"seconds": {"total": "long"}}', "seconds is not seconds by activity"),
        ("genotype.json", '{"normal": 3}', "it is not a genotype"),
    ],
)
def test_json_files_with_another_content_are_named(name, content, fault, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(WorkdirError) as error:
        Workdir(tmp_path).read(name)
    assert f"{name} is damaged, {fault}" in str(error.value)


@pytest.mark.parametrize("row", ["[1]", "7", '{"phase": 3, "step": 1}', '{"phase": "search 0"}'])
def test_rows_that_are_no_rows_are_named(row, tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text(f'{{"phase": "search 0", "step": 1}}\n{row}\n')
    assert "metrics.jsonl, line 2 is damaged, " in refused(capsys, "report", tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_a_run_that_needs_too_much_memory_leaves_nothing(tmp_path, capsys):
    sizes = ["--config.search.channels=4096", "--config.search.cells=500"]
    argv = ["run", "--config", DIGITS, "--workdir", tmp_path / "new" / "run", *sizes]
    assert "search needs about " in refused(capsys, *argv)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argument", ["--cells=1000000000", "--channels=100000", "--classes=0"])
def test_sizes_on_the_command_line_have_bounds(argument, capsys):
    with pytest.raises(SystemExit) as stop:
        main.main(["describe", "ISTA_twostage", argument])
    assert stop.value.code == 2
    assert "is not a whole number from 1 to " in capsys.readouterr().err


@pytest.mark.parametrize("topology", ["cpu:0", "cpu:100000", "cpu:\u00b2", "v5e:", "gpu:8", ""])
def test_topologies(topology, capsys):
    said = refused(capsys, "plan", "--config", DIGITS, "--topology", topology)
    assert "is neither cpu:N, N up to 999, nor a TPU slice such as v5e:4x8" in said
