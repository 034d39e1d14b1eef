"""The examples in docstrings do what they say."""

import doctest
import importlib
import json

import pytest
from places import ROOT

import istanas_jax as ista
from istanas_jax import api
from istanas_jax.runs.folder import CONFIG, GENOTYPE
from istanas_jax.space.genotype import load

PACKAGE = ROOT / "istanas_jax"
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A place in which runs end at once: a real one takes minutes."""

    def run(config, workdir):
        folder = tmp_path / workdir
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).write_text(json.dumps(config.to_dict()))
        (folder / GENOTYPE).write_text(json.dumps(load("ISTA_twostage").to_dict()))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(api.DRIVERS, "two_stage", run)
    monkeypatch.setattr(api.two_stage, "search", run)
    monkeypatch.setattr(api.retrain, "run", run)
    ista.run_schedule("digits", "runs/digits")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_examples(name, runs):
    options = doctest.NORMALIZE_WHITESPACE
    done = doctest.testmod(importlib.import_module(name), optionflags=options)
    assert done.attempted and not done.failed


@pytest.mark.parametrize("name", sorted(set(ista.__all__) - {"Node"}))
def test_calls_of_a_notebook_have_examples(name):
    assert ">>> " in getattr(ista, name).__doc__
