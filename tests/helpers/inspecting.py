"""Running `inspect` as a person would, for the tests of it."""

import json

import pytest

from istanas_jax.cli.main import main


def inspect(capsys, *arguments) -> dict:
    """What `--json` prints."""
    assert main(["inspect", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))


def page(capsys, *arguments) -> str:
    assert main(["inspect", *map(str, arguments)]) == 0
    text = capsys.readouterr().out
    assert all(len(line) <= 100 or " /" in line for line in text.splitlines())  # but for paths
    return text


def refused(capsys, *arguments) -> str:
    assert main(["inspect", *map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("istanas: ") and said.err.count("\n") == 1
    return said.err
