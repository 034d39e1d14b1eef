"""Folders of version 0.1.0 are refused in one sentence, and stay as they are."""

import json

import pytest
from old_configs import OLD_CONFIGS

from istanas_jax.cli.main import main

COMMANDS = {
    "run": lambda name, path: ["run", "--config", name, "--workdir", path],
    "dry run": lambda name, path: ["run", "--config", name, "--workdir", path, "--dry-run"],
    "report": lambda _, path: ["report", path],
}


def old_folder(tmp_path, config: str, file: str = "config.json"):
    folder = tmp_path / "run"
    (folder / "checkpoints" / "search_0").mkdir(parents=True)
    (folder / file).write_text(json.dumps(OLD_CONFIGS[config], indent=1) + "\n")
    row = {"phase": "search 0", "epoch": 1, "step": 10, "train/loss": 2.3}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def contents(folder) -> dict:
    return {path: path.is_dir() or path.read_bytes() for path in folder.rglob("*")}


def refused(capsys, folder, command: list[str]) -> None:
    before = contents(folder)
    assert main(command) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "was written by an earlier version" in said and "choose another folder" in said
    assert contents(folder) == before


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("config", ["digits:tiny", "digits:one_stage_tiny", "cifar10_retrain"])
def test_old_runs_are_refused(tmp_path, capsys, config, command):
    folder = old_folder(tmp_path, config)
    refused(capsys, folder, COMMANDS[command](config, str(folder)))


def test_old_studies_are_refused(tmp_path, capsys):
    folder = old_folder(tmp_path, "study:cost", "study_config.json")
    command = ["study", "cost", "--config", "study:cost", "--workdir", str(folder)]
    refused(capsys, folder, command)
