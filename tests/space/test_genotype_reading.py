"""Reading genotypes: whatever the text, a genotype or one sentence, and nothing is run."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from istanas_jax.space import genotype
from istanas_jax.space.genotype import Genotype, GenotypeError

DARTS_V2_TEXT = genotype.load("DARTS_V2").to_text()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not a genotype in JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[1]", "not a genotype in JSON: expected an object, found [1]"),
        ("{}", "the field 'normal' is missing"),
        ('{"normal": 1, "normal": 2}', "the field 'normal' is given twice"),
        ("[" * 20_000, "not a genotype in JSON: nested too deeply"),
        ("1" * 20_001, "the text is longer than 20,000 characters: not a genotype"),
    ],
)
def test_malformed_json_is_refused(text, sentence):
    with pytest.raises(GenotypeError, match=f"^{re.escape(sentence)}$"):
        Genotype.from_json(text)


EXPECTED = (
    "not a genotype in DARTS text: expected Genotype(normal=..., normal_concat=..., "
    "reduce=..., reduce_concat=...)"
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not a genotype in DARTS text: "),
        ("Genotype(", "not a genotype in DARTS text: "),
        ("Genotype(normal=\0)", "not a genotype in DARTS text: "),
        ("Genotype(normal='\ud800')", "not a genotype in DARTS text: "),
        ("42", EXPECTED),
        ("genotypes.Genotype(normal=1)", EXPECTED),
        ("Genotype([], [], [], [])", EXPECTED),
        ("Genotype()", "the field 'normal' is missing"),
        ("Genotype(normal=1, normal=2)", "the field 'normal' is given twice"),
        (
            "Genotype(normal=[x])",
            "DARTS text, line 1, column 18: expected a list, a string, a whole number or "
            "range(...), found Name",
        ),
        ("Genotype(**{})", "DARTS text, line 1, column 12: expected a list"),
        ("Genotype(normal='\\d')", "the field 'normal_concat' is missing"),
        ("Genotype(normal=range(1, 2, 0))", "DARTS text, line 1, column 17: range() arg 3"),
        ("Genotype(normal=range(1, 2, 3, 4))", "DARTS text, line 1, column 17: range expected"),
        ("Genotype(normal=range('a'))", "DARTS text, line 1, column 17: "),
        ("Genotype(normal=range())", "DARTS text, line 1, column 17: expected a list"),
    ],
)
def test_malformed_text_is_refused(text, sentence):
    with pytest.raises(GenotypeError, match=f"^{re.escape(sentence)}"):
        Genotype.from_text(text)


@pytest.mark.parametrize(
    ("concat", "sentence"),
    [
        ("range(2, 999999999999999999999999999)", "node 6 is out of range"),
        ("range(-999999999999999999999999999, 6)", "is out of range"),
        (f"[0x{'f' * 9_000}]", "node a huge number is out of range"),
        ("range(6, 2)", "expected a non-empty list of nodes"),
        ("[[2]]", "[2] is not a whole number"),
    ],
)
def test_huge_and_odd_ranges_cost_nothing(concat, sentence):
    text = DARTS_V2_TEXT.replace("normal_concat=range(2, 6)", f"normal_concat={concat}")
    start = time.monotonic()
    with pytest.raises(GenotypeError, match=f"^normal concat: .*{re.escape(sentence)}"):
        Genotype.from_text(text)
    assert time.monotonic() - start < 1


@pytest.mark.parametrize("piece", ["(", "[", "-", "not ", "1+", "a.", "f(", "lambda:", "a[", "[0]"])
def test_deep_nesting_does_not_crash(piece):
    for prefix in ("", "Genotype(normal="):
        text = prefix + piece * ((genotype.MAX_TEXT - len(prefix)) // len(piece) - 1) + "a"
        with pytest.raises(GenotypeError, match="DARTS text"):
            Genotype.from_text(text)


@settings(deadline=None)
@given(st.text(), st.integers(0, len(DARTS_V2_TEXT)), st.integers(0, 40))
def test_damaged_text_is_read_or_refused(noise, start, length):
    damaged = DARTS_V2_TEXT[:start] + noise + DARTS_V2_TEXT[start + length :]
    for text in (noise, damaged, "{" + noise, genotype.load("SNAS").to_json()[start:] + noise):
        for read in (Genotype.from_text, Genotype.from_json):
            try:
                assert isinstance(read(text), Genotype)
            except GenotypeError as error:
                assert str(error)


def test_text_is_never_evaluated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    touch = "__import__('pathlib').Path('touched').touch()"
    for text in (
        touch,
        f"Genotype(normal={touch})",
        f"Genotype({touch})",
        f"Genotype(normal=range({touch}))",
        f"Genotype(normal=[x for x in [{touch}]])",
        f"Genotype(normal=f'{{{touch}}}')",
    ):
        with pytest.raises(GenotypeError):
            Genotype.from_text(text)
    assert list(tmp_path.iterdir()) == []


def test_load_reads_files(tmp_path):
    expected = genotype.load("DARTS_V2")
    for name, text in (("cells.json", expected.to_json()), ("cells.txt", DARTS_V2_TEXT + "\n")):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        assert genotype.load(path) == genotype.load(str(path)) == expected
    path.write_text("\ufeff" + DARTS_V2_TEXT, encoding="utf-8")
    assert genotype.load(path) == expected


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\xff\xfe\xfa", "not a text file"),
        (b"{}", "the field 'normal' is missing"),
        (b"x" * 30_000, "the text is longer than 20,000 characters: not a genotype"),
    ],
)
def test_load_names_the_file_it_cannot_read(tmp_path, content, sentence):
    path = tmp_path / "cells.json"
    path.write_bytes(content)
    with pytest.raises(GenotypeError, match=f"^{re.escape(f'{path}: {sentence}')}$"):
        genotype.load(path)
    with pytest.raises(GenotypeError, match=f"^{re.escape(str(tmp_path))}: Is a directory$"):
        genotype.load(str(tmp_path))


ACCEPTED = (
    "accepted are a published name, the path of an existing file, JSON or DARTS text, random:SEED"
)


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("ista_two_stage", " (did you mean ISTA_twostage or ISTA_onestage?); "),
        ("missing.json", " (expected one of ISTA_twostage, ISTA_onestage, "),
        ("a\0b", " (expected one of "),
        ("x" * 10_000, " (expected one of "),
    ],
)
def test_load_says_what_it_accepts(spec, hint):
    with pytest.raises(GenotypeError) as caught:
        genotype.load(spec)
    assert hint in str(caught.value)
    assert str(caught.value).endswith(ACCEPTED)
    assert len(str(caught.value)) < 400
