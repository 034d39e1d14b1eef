"""The wheel works, and pyproject.toml, requirements.txt, LICENSE and CITATION.cff agree."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED = ("test", "onnx", "jupyter")  # extras that the suite runs with
EXTRAS = [line for extra in PINNED for line in PROJECT["optional-dependencies"][extra]]
DECLARED = [*PROJECT["dependencies"], *EXTRAS]


def pinned() -> dict[str, str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pins = (line.split("==") for line in lines if "==" in line)
    return {canonicalize_name(name): version for name, version in pins}


@pytest.mark.parametrize("line", DECLARED)
def test_bounds_admit_the_pinned_version(line):
    wanted = Requirement(line)
    assert {bound.operator for bound in wanted.specifier} == {">=", "<"}
    assert pinned()[canonicalize_name(wanted.name)] in wanted.specifier


def test_license_and_citation_are_of_this_project():
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text
    (holder,) = re.findall(r"^ +Copyright \d{4} (.+)$", text, re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert [author["name"] for author in citation["authors"]] == [holder]
    assert [author["name"] for author in PROJECT["authors"]] == [holder]
    assert citation["license"] == PROJECT["license"]
    assert str(citation["version"]) == PROJECT["version"]
    paper = citation["preferred-citation"]
    assert paper["title"].startswith("ISTA-NAS") and paper["year"] == 2020
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Yang", "Li", "You", "Wang", "Qian", "Lin"]


def test_a_wheel_finds_its_configs(tmp_path, environment):
    """An installed package has no checkout around it: neither the folder nor the path is there."""
    source, site, elsewhere = (tmp_path / name for name in ("source", "site", "elsewhere"))
    elsewhere.mkdir()
    skip = shutil.ignore_patterns("__pycache__")
    for name in ("istanas_jax", "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=source, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    own = elsewhere / "own.py"
    own.write_text("from configs import digits\n\nget_config = digits.get_config\n")
    # The key is refused only after the config has been found and run.
    commands = (
        "import sys; from istanas_jax.cli.main import main\n"
        "for config in sys.argv[1:]:\n"
        "    options = ['--config', config, '--workdir', 'run', '--config.search.epoch=3']\n"
        "    assert main(['run', *options]) == 2\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", commands, "digits", "own.py"],
        cwd=elsewhere,
        env=environment | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    sentence = "istanas: unknown config key search.epoch, did you mean search.epochs?\n"
    assert said.stderr == 2 * sentence
