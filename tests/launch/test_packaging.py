"""pyproject.toml, requirements.txt, LICENSE and CITATION.cff agree with each other."""

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECLARED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]


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
