"""What a run's folder says of where it comes from."""

import os
import subprocess
from importlib import metadata

import pytest
from places import ROOT

from istanas_jax.devices.parallel import Devices
from istanas_jax.runs.file_contents import faults
from istanas_jax.runs.provenance import command_line, commit, provenance


def test_what_computed_is_recorded():
    told = provenance(Devices())
    for name in ("jax", "jaxlib"):
        assert told["versions"][name] == metadata.version(name)
    assert told["xla_flags"] == os.environ["XLA_FLAGS"] != ""
    assert told["command"] is None  # as of a notebook, whose runs can be looked at like others
    assert list(faults("started.json", told)) == []


@pytest.mark.parametrize("program", ["/any/where/istanas_jax/__main__.py", "/usr/bin/istanas"])
@pytest.mark.parametrize("config", [["--config", "a.py:tiny"], ["--config=a.py:tiny"]])
def test_command_of_our_program(program, config):
    rest = ["--workdir", "w", "--config.seed=3"]
    typed, name, overrides = command_line([program, "run", *config, *rest])
    assert typed == ["python", "-m", "istanas_jax", "run", *config, *rest]
    assert (name, overrides) == ("a.py:tiny", ["--config.seed=3"])


def test_command_of_another_program():
    assert command_line(["/usr/bin/pytest", "--config", "x"]) == (None, None, [])


def test_commit_is_the_checkout_s():
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a checkout")
    log = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%H"], capture_output=True)
    told = commit()
    assert len(told.rstrip("+")) == 12
    assert log.stdout.decode().startswith(told.rstrip("+"))
