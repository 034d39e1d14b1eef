"""Whatever is typed or damaged: a result, or one sentence with exit code 2, and nothing left over.

The command line runs in this process. `--dry-run` ends a good config right before its network is
compiled. CASES are what each test tries; together they are more than 1,000.
"""

import copy
import io
import json
import math
import shutil
import tempfile
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_runs import make_run

from istanas_jax.cli import main
from istanas_jax.config.bounds import BOUNDS
from istanas_jax.methods import METHODS
from istanas_jax.space.genotype import random_genotype

CASES = {"overrides": 350, "genotypes": 250, "npz": 200, "folders": 300}
LONGEST = 60.0  # seconds of the processor: more is a hang (the first case imports everything)
DIGITS, ONE_STAGE = "configs/digits.py:tiny", "configs/digits.py:one_stage_tiny"
KEYS = sorted(BOUNDS)


def cases(name: str):
    """Random, but the same ones at every run: what CI has passed does not fail later by chance."""
    return settings(
        max_examples=CASES[name],
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def test_there_are_a_thousand():
    assert sum(CASES.values()) >= 1000


def run(*argv) -> int:
    """One command: it must end soon, with a result or with one sentence."""
    out, err = io.StringIO(), io.StringIO()
    begin = time.process_time()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main.main([str(argument) for argument in argv])
        except SystemExit as stop:  # argparse: usage, then its sentence
            assert stop.code == 2, argv
            return 2
    said = err.getvalue()
    assert time.process_time() - begin < LONGEST, argv
    assert code in (0, 2), f"{argv}\n{said}"
    assert "Traceback" not in said, f"{argv}\n{said}"
    if code == 2:
        assert said.startswith("istanas: ") and said.count("\n") == 1 and len(said) < 2000, said
        assert out.getvalue() == ""
    return code


@contextmanager
def new_folder():
    """One per case; what a case does not take away itself, a command has left behind."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)
        assert list(Path(path).iterdir()) == []


# Values as they are typed: numbers of all sizes, words, lists, nonsense.
NUMBERS = st.one_of(
    st.integers(-(10**30), 10**30),
    st.integers(-3, 64),
    st.floats(),
    st.sampled_from([0, 1, -1, 2**31, 2**32, 2**63, 1e23, 1e300, math.inf, math.nan]),
)
TYPICAL = [
    "", "None", "True", "ista", "darts", "random", "cifar", "imagenet", "epoch", "step", "7", "()",
    "bfloat16", "digits", "linear", "two_stage", "one_stage", "retrain", "(1, 2)", "[]", "{}", ".",
    "(nan,)", "0x10", "1_000", "١", "/", "/dev/null", "nothing.npz", "http://a/b",
]  # fmt: skip
WORDS = st.one_of(
    st.sampled_from(TYPICAL),
    st.text(st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs"]), max_size=12),
)
TYPED = st.one_of(NUMBERS.map(str), NUMBERS.map(repr), WORDS)


@pytest.mark.slow
@cases("overrides")
@given(
    chosen=st.lists(st.tuples(st.sampled_from(KEYS), TYPED), min_size=1, max_size=3),
    command=st.sampled_from(["run", "run", "search", "retrain"]),
    base=st.sampled_from([*METHODS, "one_stage"]),
)
def test_config_overrides(chosen, command, base):
    overrides = [f"--config.{key}={value}" for key, value in chosen]
    more = ["--genotype", "random:1"] if command == "retrain" else []
    config = DIGITS
    if base == "one_stage":
        config = ONE_STAGE
    else:
        more.append(f"--config.search.method={base}")
    with new_folder() as folder:
        where = ["--config", config, "--workdir", folder / "new" / "run"]
        run(command, *where, *more, *overrides, "--dry-run")


# Damage: of JSON, of text, of bytes.
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(), st.text(max_size=5),
    st.just([]), st.just({}), st.just([[1, "a"]]), st.just({"a": [{}]}), st.just(10**9),
)  # fmt: skip


def changed(value, draw):
    """The value with one thing in it taken out or made something else."""
    inside = []
    if isinstance(value, dict | list):
        inside = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not inside or draw(st.integers(0, 7)) == 0:
        return draw(JUNK)
    key = draw(st.sampled_from(inside))
    value = copy.copy(value)
    if draw(st.integers(0, 5)) == 0:
        del value[key]
    else:
        value[key] = changed(value[key], draw)
    return value


def damaged(content: bytes, draw, *, lines: bool = False) -> bytes:
    """The content of a file, cut, flipped or changed."""
    way = draw(st.sampled_from(["cut", "flip", "change", "change"]))
    if way == "change":
        if not lines:
            return json.dumps(changed(json.loads(content), draw)).encode()
        rows = content.splitlines()
        number = draw(st.integers(0, len(rows) - 1))
        rows[number] = json.dumps(changed(json.loads(rows[number]), draw)).encode()
        return b"\n".join([*rows, b""])
    place = draw(st.integers(0, len(content) - 1))
    if way == "cut":
        return content[:place]
    return (
        content[:place]
        + bytes([content[place] ^ 1 << draw(st.integers(0, 7))])
        + content[place + 1 :]
    )


@pytest.mark.slow
@cases("genotypes")
@given(data=st.data())
def test_genotypes(data):
    genotype = random_genotype(data.draw(st.integers(0, 99)))
    texts = [genotype.to_json(), genotype.to_text(), "ISTA_twostage", "random:3"]
    text = data.draw(st.sampled_from(texts))
    way = data.draw(st.sampled_from(["as it is", "cut", "inserted", "json", "text"]))
    if way == "cut":
        text = text[: data.draw(st.integers(0, len(text)))]
    elif way == "inserted":
        place = data.draw(st.integers(0, len(text)))
        text = text[:place] + data.draw(WORDS) + text[place:]
    elif way == "json":
        text = json.dumps(changed(json.loads(genotype.to_json()), data.draw))
    elif way == "text":
        text = data.draw(WORDS)
    where = ["--config", "configs/cifar10_retrain.py:tiny", "--config.data.name=digits"]
    where += [
        "--config.data.classes=0",
        "--config.data.image_size=0",
        "--config.data.test_fraction=0.2",
    ]
    where += ["--config.data.image_channels=0", "--config.data.mean=()", "--config.data.std=()"]
    with new_folder() as folder:
        file = folder / "genotype"
        if data.draw(st.booleans()):
            file.write_text(text)
            text = file
        run("retrain", *where, f"--genotype={text}", "--workdir", folder / "run", "--dry-run")
        file.unlink(missing_ok=True)


SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 4, 8, 40]), max_size=5).map(tuple)
DTYPES = st.sampled_from(["u1", "i1", "u2", "i8", "u8", "f4", "f8", "c8", "?", "S3", "M8[s]", "O"])


def some_array(draw, good: np.ndarray) -> np.ndarray:
    way = draw(st.sampled_from(["good", "dtype", "shape", "values"]))
    if way == "dtype":
        return np.zeros(good.shape, draw(DTYPES))
    if way == "shape":
        return np.zeros(draw(SHAPES), good.dtype)
    if way == "values" and good.size:
        good = good.astype("i8")
        good.flat[draw(st.integers(0, good.size - 1))] = draw(st.integers(-(2**63), 2**63 - 1))
    return good


@pytest.mark.slow
@cases("npz")
@given(data=st.data())
def test_npz_files(data):
    labels = np.arange(80) % 4
    good = {"images": np.zeros((80, 8, 8, 1), np.uint8), "labels": labels}
    if data.draw(st.booleans()):
        good |= {"test_images": good["images"][:20], "test_labels": labels[:20]}
    members = {name: some_array(data.draw, array) for name, array in good.items()}
    if data.draw(st.integers(0, 4)) == 0:
        members.pop(data.draw(st.sampled_from(sorted(members))))
    if data.draw(st.integers(0, 4)) == 0:
        members[data.draw(st.sampled_from(["image", "x", "a/b"]))] = np.zeros(3)
    with new_folder() as folder:
        file = folder / "images.npz"
        np.savez(file, **members)
        if data.draw(st.integers(0, 3)) == 0:
            content = file.read_bytes()
            place = data.draw(st.integers(0, len(content) - 1))
            ways = [content[:place], content[place:], b"PK" * 40]
            file.write_bytes(data.draw(st.sampled_from(ways)))
        where = ["--config", "configs/images.py:tiny", f"--config.data.name={file}"]
        run("run", *where, "--workdir", folder / "run", "--dry-run")
        file.unlink()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = make_run(tmp_path_factory.mktemp("runs") / "good", epochs=2, per_epoch=2)
    started = {"config": DIGITS, "overrides": ["--config.seed=1"], "command": ["istanas", "run"]}
    started |= {"versions": {"jax": "0"}, "commit": "abc", "defaults": {"seed": 0}}
    (path / "started.json").write_text(json.dumps(started))
    return path


@pytest.mark.slow
@cases("folders")
@given(data=st.data())
def test_run_folders(finished, data):
    with new_folder() as folder:
        run_folder = folder / "run"
        shutil.copytree(finished, run_folder)
        names = st.sampled_from(sorted(path.name for path in finished.iterdir()))
        for name in data.draw(st.lists(names, min_size=1, max_size=2, unique=True)):
            file, lines = run_folder / name, name.endswith(".jsonl")
            file.write_bytes(damaged(file.read_bytes(), data.draw, lines=lines))
        before = {path.name for path in run_folder.iterdir()}
        look_at(data.draw(st.sampled_from(COMMANDS)), run_folder, finished)
        assert {path.name for path in run_folder.iterdir()} - before <= {"report.html"}
        shutil.rmtree(run_folder)


COMMANDS = ("report", "report", "compare", "index", "inspect", "judge", "describe", "export", "run")


def look_at(command: str, folder: Path, other: Path) -> None:
    """A command that reads the run's folder; its page is there if and only if it says so."""
    page = folder.parent / "page.html"
    if command == "report":
        assert (run("report", folder) == 0) == (folder / "report.html").exists()
    elif command == "compare":
        assert (run("report", folder, other, "--out", page) == 0) == page.exists()
    elif command == "index":
        assert (run("report", folder.parent, "--out", page) == 0) == page.exists()
    elif command == "describe":
        where = ["--config", "configs/cifar10_retrain.py:tiny", "--config.data.name=digits"]
        out = ["--workdir", folder.parent / "new", "--dry-run"]
        run("retrain", *where, "--genotype", folder / "genotype.json", *out)
    elif command == "judge":
        run("judge", folder)
    elif command == "run":
        assert run("run", "--config", DIGITS, "--workdir", folder, "--dry-run") == 2
    else:  # a made-up run has neither checkpoints nor a network
        more = ["--out", folder.parent / "new"] if command == "export" else []
        assert run(command, folder, *more) == 2
    page.unlink(missing_ok=True)
