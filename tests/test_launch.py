"""The launch scripts fail in one line where they cannot work."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def checkout(tmp_path):
    """Enough of a checkout to build an environment in."""
    shutil.copytree(ROOT / "launch", tmp_path / "launch")
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def run(checkout: Path, **env):
    return subprocess.run(
        ["bash", "launch/local.sh", "--help"],
        cwd=checkout,
        env=os.environ | env,
        capture_output=True,
        text=True,
    )


def test_old_python_is_said(checkout):
    old = checkout / "old_python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    result = run(checkout, PYTHON=str(old))
    assert result.returncode == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert "needs Python 3.11 or newer" in result.stderr


def test_unreachable_index_is_said(checkout):
    result = run(checkout, PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert result.returncode == 1
    assert "is the package index reachable?" in result.stderr.strip().splitlines()[-1]
    assert not (checkout / ".venv" / "built-from").exists()
