"""The command line as a person meets it: help, JSON, errors."""

import json
import os
import signal
import subprocess
import sys

import pytest

from istanas_jax.cli.main import main


@pytest.mark.parametrize("argv", [["--help"], ["bench", "--help"], ["bench", "recovery", "--help"]])
def test_help_teaches(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 0
    assert "LASSO" in capsys.readouterr().out


def test_module_and_console_script_are_the_same():
    module = subprocess.run(
        [sys.executable, "-m", "istanas_jax", "--help"], capture_output=True, text=True, check=True
    )
    script = subprocess.run(["istanas", "--help"], capture_output=True, text=True, check=True)
    assert module.stdout == script.stdout
    assert "examples:" in module.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("argv", [["--help"], ["judge", "ISTA_twostage"]])
def test_a_closed_pipe_ends_a_command_silently(argv, unbuffered):
    command = [sys.executable, "-m", "istanas_jax", *argv]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        process.stdout.close()  # as `head` does when it has enough
        assert process.stderr.read() == b""
    if argv != ["--help"]:  # argparse passes over the error if it meets it
        assert process.returncode == 128 + signal.SIGPIPE


def test_another_broken_pipe_is_an_error(monkeypatch, capsys):
    def break_pipe(*_):
        raise BrokenPipeError("a worker has ended")

    monkeypatch.setattr("istanas_jax.look.judgement.judge_all", break_pipe)
    assert main(["judge", "ISTA_twostage"]) == 2
    assert capsys.readouterr().err == "istanas: a worker has ended\n"


@pytest.mark.slow
def test_bench_recovery_prints_one_json_line(capsys):
    assert main(["bench", "recovery", "--problems", "8", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert set(results["scales"]) == {"0.001", "0.01", "0.1", "1"}
    for row in results["scales"].values():
        assert row["support_agrees"] == row["compared"]
        assert row["converged"] == 8
    for row in results["whole_architecture"].values():
        assert row["all_certified"]


@pytest.mark.slow
def test_bench_recovery_prints_a_table(capsys):
    assert main(["bench", "recovery", "--problems", "8"]) == 0
    assert "top-2 agrees" in capsys.readouterr().out


@pytest.mark.slow
def test_bench_step_never_recompiles(capsys):
    small = ["--batch", "2", "--channels", "4", "--cells", "1", "--steps", "3"]
    assert main(["bench", "step", "--random-support", "--json", *small]) == 0
    results = json.loads(capsys.readouterr().out)
    keys = "mode step_s step_s_median trace_s compile_s temp_mb peak_rss_mb multiply_adds"
    assert set(keys.split()) < set(results)
    assert results["recompilations"] == 0
    assert main(["bench", "step", "--mode", "static", "--random-support", *small]) == 2
    assert "--random-support needs another mode" in capsys.readouterr().err


def test_bad_arguments_exit_with_2(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", "recovery", "--problems", "0"])
    assert stop.value.code == 2
    assert "0 is not a whole number from 1 to" in capsys.readouterr().err
