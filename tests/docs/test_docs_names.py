"""Files, functions, config keys and links in the documents exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from documents import documents
from places import ROOT

from istanas_jax.config.files import keys, load_config

PLACES = (ROOT, ROOT / "istanas_jax")
CONFIGS = [
    "cifar10_two_stage.py",
    "baselines.py:darts",
    "cifar10_one_stage.py",
    "cifar10_retrain.py",
    "imagenet_one_stage.py",
    "images.py",
    "transfer.py",
    "study.py",
    "study.py:suite",
]
# With a folder, so that the name of a file in a config or a command is not meant.
NAMED = re.compile(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)(?:: ([\w, ]+))?`")
MADE_UP = {"istanas_jax/methods/sigmoid.py"}  # examples of what a reader would write
LINKS = re.compile(r"\]\(([^)#:]+)\)|src(?:set)?=\"([^\"]+)\"")
FILES = (".py", ".json", ".md", ".svg")
OVERRIDES = re.compile(r"--config\.([a-z_0-9.]+)=?")


def text_of(document: Path) -> str:
    """In one line, so that names which are broken over two are whole."""
    return " ".join(document.read_text().split())


def defined_in(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if hasattr(node, "name")}


@cache
def known_keys() -> set[str]:
    """Keys of all configs and of the parts that hold them, with those of every method."""
    found = set()
    for name in CONFIGS:
        for key in keys(load_config(str(ROOT / "configs" / name))):
            parts = key.split(".")
            found |= {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
    return found


@pytest.mark.parametrize("document", documents(), ids=lambda document: document.name)
def test_files_and_functions_exist(document):
    for name, functions in NAMED.findall(text_of(document)):
        if name in MADE_UP:
            continue
        file = next((place / name for place in PLACES if (place / name).exists()), None)
        assert file, f"{name} does not exist"
        named = {function.strip() for function in functions.split(",") if function}
        assert not named - defined_in(file), f"not in {name}"


@pytest.mark.parametrize("document", documents(), ids=lambda document: document.name)
def test_config_keys_exist(document):
    text = text_of(document)
    parts = "|".join(sorted({key.split(".")[0] for key in known_keys()}))
    named = set(OVERRIDES.findall(text))
    named |= set(re.findall(rf"`((?:{parts})\.[a-z_0-9.]+)(?: = [^`]+|=[^`]+)?`", text))
    named = {key.rstrip(".") for key in named if not key.endswith(FILES)}
    assert not named - known_keys()


def test_the_order_of_packages_is_that_of_the_imports():
    text = text_of(ROOT / "docs" / "architecture.md")
    (said,) = re.findall(r"only those before it: ([\w, ]+)\.", text)
    enforced = re.search(
        r"ORDER = \[(.*?)\]", (ROOT / "tests" / "test_imports.py").read_text(), re.S
    )
    assert said.split(", ") == re.findall(r"\w+", enforced[1])


@pytest.mark.parametrize("document", documents(), ids=lambda document: document.name)
def test_links_lead_somewhere(document):
    for link in ("".join(found) for found in LINKS.findall(document.read_text())):
        assert (document.parent / link).exists(), link
