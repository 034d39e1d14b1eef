"""The diffs in CONTRIBUTING.md work: each is applied to a copy of the package, which is then used.

To test the diffs of another section, add its heading and a script of `recipes/` to SCRIPTS.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

# Heading of a section in CONTRIBUTING.md -> script that runs where its diffs are applied.
SCRIPTS = {
    "A new operation": "operation.py",
    "A new method": "method.py",
    "A new data source": "data_source.py",
}
COPIED = ("istanas_jax", "configs")


def diffs_by_heading() -> dict[str, list[str]]:
    """The ```diff blocks of each section, without those that have none."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    sections = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)[1:]
    blocks = {
        heading: re.findall(r"^```diff\n(.*?)^```$", body, flags=re.MULTILINE | re.DOTALL)
        for heading, body in zip(sections[::2], sections[1::2], strict=True)
    }
    return {heading: diffs for heading, diffs in blocks.items() if diffs}


def copy_with(diffs: list[str], folder: Path) -> Path:
    """A copy of the package in the folder, with the diffs applied."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for diff in diffs:
        # Line counts in a hunk's header are a burden for whoever writes it: git counts again.
        subprocess.run(["git", "apply", "--recount"], cwd=folder, input=diff, text=True, check=True)
    return folder


def test_every_diff_is_tested():
    assert set(diffs_by_heading()) == set(SCRIPTS)


@pytest.mark.slow
@pytest.mark.parametrize("heading", SCRIPTS)
def test_a_diff_works(heading, tmp_path, environment):
    copy = copy_with(diffs_by_heading()[heading], tmp_path)
    script = Path(__file__).parent / "recipes" / SCRIPTS[heading]
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=copy,
        env=environment | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
