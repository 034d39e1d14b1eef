"""Every command of the documents works as it stands there, in a fresh checkout.

They run one after the other in one folder, so that later ones find what earlier ones left. Large
ones get arguments that make them small. What cannot run here is rehearsed, or has a reason.
"""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import pytest
import tensorflow_datasets as tfds
from documents import commands_in, documents
from places import ROOT
from tiny_space import TINY_SPACE_FLAGS

from istanas_jax.cli.main import main

PROGRAM = "python -m istanas_jax "


class Way(NamedTuple):
    """How a command is run."""

    variant: str = ""  # replaces the variant of its config
    more: str = ""  # further arguments
    rehearsed: bool = False  # runs with --dry-run, which checks everything and does nothing
    reason: str = ""  # why it is not run at all


AS_TYPED = Way()
SPACE = " ".join(TINY_SPACE_FLAGS)
SMALL = f"{SPACE} --config.search.cells=1 --config.train.cells=1"
CIFAR = "--config.data.dir=data"
NO_HEADS = "--config.search.auxiliary_weight=0.0 --config.train.auxiliary_weight=0.0"
STUDY = f"{SMALL} --config.study.methods=('ista',) --config.study.seeds=1"
STUDY += " --config.study.one_stage=False"
DIGITS = Way("tiny", SMALL)
FEW = "--seconds 0 --operations max_pool_3x3 --batch 2"
# One schedule is run. Those that differ only in config or method have their images, sizes and
# memory checked: other tests run them.
REHEARSED = Way("tiny", CIFAR, rehearsed=True)
LEFT = {"study": "study.md", "ops": "operations.json"}  # in the workdir, by others than runs
LONG_TRANSFER = "it needs CIFAR-10 and ten minutes; the guide's transfer is run"
WAYS = {
    # README, and the same things in the guide
    "bash launch/local.sh": Way(more=f"run --config digits:tiny {SMALL} --workdir runs/digits"),
    "bash launch/test.sh": Way(reason="it is this suite"),
    "python -m istanas_jax --help": AS_TYPED,
    "python -m istanas_jax run --config digits --workdir runs/digits": DIGITS,
    "python -m istanas_jax run --config digits --workdir runs/profiled --profile 10:20": DIGITS,
    "python -m istanas_jax report runs/digits": AS_TYPED,
    "python -m istanas_jax inspect runs/digits": AS_TYPED,
    "python -m istanas_jax watch runs": Way(more="--port 0 --seconds 0.2"),
    "python -m istanas_jax judge ISTA_twostage random:0": AS_TYPED,
    "python -m istanas_jax export runs/digits --out digits_net": AS_TYPED,
    "python -m istanas_jax export runs/digits --out digits_net --bench": AS_TYPED,
    "python -m istanas_jax predict digits_net examples/digit.png": AS_TYPED,
    "python -m istanas_jax predict examples/cifar10/network examples/cat.png": AS_TYPED,
    "python -m istanas_jax prepare cifar10": Way(more="--dir data"),
    "python -m istanas_jax run --config cifar10_two_stage --workdir runs/two_stage": REHEARSED,
    "python -m istanas_jax run --config cifar10_one_stage --workdir runs/one_stage": Way(
        "tiny", f"{SMALL} {NO_HEADS} {CIFAR}"
    ),
    "python -m istanas_jax retrain --config cifar10_retrain --genotype PC_DARTS_cifar "
    "--workdir runs/cell": REHEARSED,
    "python -m istanas_jax run --config images --config.data.name=my_images "
    "--workdir runs/own": Way("tiny", rehearsed=True),
    "python -m istanas_jax run --config imagenet_one_stage "
    "--config.data.name=imagenet --workdir runs/imagenet": Way(
        "tiny", "--config.data.classes=2", rehearsed=True
    ),
    "python -m istanas_jax retrain --config transfer --from runs/digits "
    "--config.data.name=my_images --workdir runs/transfer": Way("tiny"),
    # The guide: other search methods, and comparing them
    "python -m istanas_jax run --config cifar10_two_stage "
    "--config.search.method=pc_darts --workdir runs/pc_darts": REHEARSED,
    "python -m istanas_jax run --config baselines:darts --workdir runs/darts": REHEARSED._replace(
        variant="darts_tiny"
    ),
    "python -m istanas_jax describe --all": AS_TYPED,
    "python -m istanas_jax study cost --config study:cost_small --workdir runs/cost": Way(
        "cost_tiny", f"{SMALL} --config.study.methods=('random',) --config.study.batches=(8,)"
    ),
    "python -m istanas_jax study correlation --config study:correlation_small "
    "--workdir runs/tau": Way("correlation_tiny", STUDY),
    "python -m istanas_jax study accuracy --config study:accuracy_small "
    "--workdir runs/accuracy": Way("accuracy_tiny", STUDY),
    "python -m istanas_jax study suite --config study:suite_small --workdir runs/suite": Way(
        "suite_tiny", STUDY
    ),
    "python -m istanas_jax study suite --config study:suite_small --config.study.seeds=3 "
    "--workdir runs/suite": Way(reason="it is the command above with more seeds"),
    "python -m istanas_jax study curves --config study:curves_small --workdir runs/curves": Way(
        "curves_tiny", STUDY
    ),
    "python -m istanas_jax study quality --config study:quality_small --workdir runs/quality": Way(
        "quality_tiny",
        f"{SMALL} --config.study.methods=('random',) --config.study.seeds=1 "
        "--config.study.minutes=0.001 --config.study.trained.random=0",
    ),
    "python -m istanas_jax study quality --config study:quality_small --config.seed=500 "
    "--config.study.methods=\"('ista',)\" --workdir runs/quality_500": Way(
        reason="it is the command above for one method"
    ),
    "python -m istanas_jax bench torture": Way(
        reason="it kills 20 real runs, for half an hour; the suite kills fewer"
    ),
    "python -m istanas_jax bench memory": Way(
        reason="it compiles four steps; the tests of `recompute` compare what they need"
    ),
    # Search spaces: tests/schedules/test_space_runs.py makes such runs
    "python -m istanas_jax run --config digits --config.space.name=s2 --workdir runs/s2": Way(
        "tiny", rehearsed=True
    ),
    "python -m istanas_jax run --config digits "
    "--config.space.operations=\"('skip_connect','examples/my_operations.py:squeeze',"
    "'examples/my_operations.py:bottleneck')\" --workdir runs/mine": Way("tiny", rehearsed=True),
    # The guide: what things cost
    "python -m istanas_jax bench ops --config digits": Way("tiny", f"{SMALL} {FEW}"),
    "python -m istanas_jax bench ops --workdir runs/digits": Way(more=FEW),
    "python -m istanas_jax bench start --config digits": Way(
        reason="it starts two runs from nothing; tests/bench/test_start.py times tiny ones"
    ),
    "python -m istanas_jax bench grow --plot grow.svg": Way(
        reason="it compiles 16 steps for minutes each; tests/bench/test_grow.py measures one"
    ),
    "python -m istanas_jax bench latency --config cifar10_two_stage:small --batch 32": Way(
        reason="it is the command below at another size"
    ),
    "python -m istanas_jax bench latency --config digits": Way(
        "tiny", f"{SMALL} --seconds 0 --nets 1 --budgets 1"
    ),
    # The guide: devices
    "bash launch/local.sh run --config digits --workdir runs/digits": DIGITS,
    "bash launch/cuda.sh run --config digits --workdir runs/digits": Way(rehearsed=True),
    "python launch/tpu/tpu_pod.py --name istanas --zone us-west4-a --accelerator v5litepod-32 "
    "-- run --config imagenet_one_stage --workdir gs://my-bucket/imagenet": Way(rehearsed=True),
    "python -m istanas_jax plan --config imagenet_one_stage --topology v5e:4x8": Way(
        reason="the TPU compiler is not in requirements.txt; tests/plan plans for CPUs"
    ),
    "python -m istanas_jax plan --config cifar10_two_stage --topology v5e:2x2": Way(
        reason="the TPU compiler is not in requirements.txt; tests/plan plans for CPUs"
    ),
    "python -m istanas_jax plan --config cifar10_two_stage --topology a100:8": Way(
        reason="the CUDA compiler is not in requirements.txt; tests/plan reads its programs"
    ),
    "bash launch/check_cuda.sh": Way(reason="it installs the CUDA compiler, of some gigabytes"),
    "bash launch/check_tpu.sh": Way(reason="it installs the TPU compiler and takes a quarter hour"),
    # Results
    "python -m istanas_jax retrain --config images --genotype ISTA_twostage "
    "--config.data.name=first.npz --config.data.flip=True --config.data.holdout_fraction=0 "
    "--config.train.cells=5 --config.train.channels=8 --config.train.drop_path=0 "
    "--config.train.epochs=5 --workdir runs/first": Way(reason=LONG_TRANSFER),
    "python -m istanas_jax retrain --config transfer --from runs/first "
    "--config.data.name=second.npz --runs 3 --workdir runs/second": Way(reason=LONG_TRANSFER),
    "python -m istanas_jax bench docs": Way(more="--only ISTA_twostage"),
    "python -m istanas_jax bench recovery": Way(more="--problems 8"),
    "python -m istanas_jax bench step": Way(more="--cells 1 --channels 4 --batch 2 --steps 1"),
    # CONTRIBUTING
    "bash launch/test.sh --quick": Way(reason="it is this suite"),
    "bash launch/test.sh tests/space/test_genotype.py": Way(reason="it is this suite"),
}


def test_every_command_has_a_way_to_run_it():
    """Also, every way belongs to a command that is still documented."""
    found = [c for document in documents() for c in commands_in(document.read_text())]
    assert not set(found) - set(WAYS), "say in WAYS how these are run"
    assert not set(WAYS) - set(found), "these are in no document any more"


def test_commands_are_found():
    text = """
Try `python -m istanas_jax run
x`, or `bash launch/a.sh b` and `bash launch/a.sh b` again.

    python launch/a.py --one \\
        --two        # a comment
    other program

```
python -m istanas_jax --help
```
`bash launch/c.sh` is the last.
"""
    assert commands_in(text) == [
        "python -m istanas_jax run x",
        "bash launch/a.sh b",
        "python launch/a.py --one --two",
        "python -m istanas_jax --help",
        "bash launch/c.sh",
    ]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A fresh clone with its environment, and images of the reader's own."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("configs", "launch", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", "-C", folder, *command], check=True)
    (folder / ".venv" / "bin").mkdir(parents=True)
    python = folder / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    built = [(folder / name).read_bytes() for name in ("requirements.txt", "pyproject.toml")]
    (folder / ".venv" / "built-from").write_bytes(b"".join(built))
    write_images(folder / "my_images", 12, 30)
    write_images(folder / "imagenet" / "train", 40, 12)
    write_images(folder / "imagenet" / "val", 40, 3)
    write_cifar10(folder / "download" / "cifar-10-batches-bin")
    return folder


def write_images(folder: Path, size: int, number: int) -> None:
    """Write `number` images for each of two classes."""
    rng = np.random.default_rng(0)
    for animal in ("cat", "dog"):
        (folder / animal).mkdir(parents=True)
        for n in range(number):
            image = rng.integers(0, 256, (size, size, 3), np.uint8)
            cv2.imwrite(str(folder / animal / f"{n}.jpg"), image)


def write_cifar10(folder: Path) -> None:
    """Write the files of the download, with 12 images each."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for file in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        records = rng.integers(0, 256, (12, 3073), np.uint8)
        records[:, 0] = np.arange(12) % 10
        records.tofile(folder / file)
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij"))


def arguments_of(command: str, way: Way) -> list[str]:
    """Return the words of the command, changed as its way says."""
    words = shlex.split(command)
    if way.variant:
        place = words.index("--config") + 1
        words[place] = f"{words[place].partition(':')[0]}:{way.variant}"
    if way.rehearsed:
        job = words.index("--") if "--" in words else 2  # which has arguments of its own
        words.insert(job if words[1].startswith("launch/") else len(words), "--dry-run")
    return words + way.more.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [c for c, way in WAYS.items() if not way.reason], ids=lambda command: command[-60:]
)
def test_command(command, checkout, environment, monkeypatch):
    way = WAYS[command]
    words = arguments_of(command, way)
    monkeypatch.chdir(checkout)
    download = tfds.download.DownloadManager
    monkeypatch.setattr(download, "download_and_extract", lambda *_: str(checkout / "download"))
    if command.startswith(PROGRAM):
        try:
            code = main(words[3:])
        except SystemExit as end:  # raised by --help
            code = end.code
    else:
        code = subprocess.run(words, env=environment, timeout=600).returncode
    assert code == 0
    if "--workdir" in words and not way.rehearsed:
        folder = checkout / words[words.index("--workdir") + 1]
        left = next((name for job, name in LEFT.items() if job in words), "result.json")
        assert (folder / left).exists()
