"""A run on a disk of 8 MB that becomes read-only, full, and is taken away: what it says.

    unshare --map-root-user --mount python tests/helpers/small_disk.py FOLDER

In a mount namespace of its own, so that what is mounted is gone with the process. Prints JSON.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from places import ROOT

SIZES = ["--config.train.cells=1", "--config.train.epochs=20"]
CELL = [["skip_connect", 0], ["max_pool_3x3", 1]] * 2  # compiled at once
GENOTYPE = {"normal": CELL, "normal_concat": [2, 3], "reduce": CELL, "reduce_concat": [2, 3]}


def start(workdir: Path) -> subprocess.Popen:
    config = str(ROOT / "configs" / "digits.py:tiny")
    command = [sys.executable, "-m", "istanas_jax", "retrain", "--config", config, *SIZES]
    command += ["--genotype", json.dumps(GENOTYPE), "--config.checkpoint.every_steps=10"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, "--workdir", str(workdir)], **pipes)


def last_step(steps: Path) -> int:
    return max((int(p.name) for p in steps.glob("*") if p.name.isdigit()), default=0)


def after(fault, disk: Path) -> dict:
    """Start the run, do `fault` to it once it has saved a step more, and see how it ends."""
    steps = disk / "run" / "checkpoints" / "retrain_0"
    before = last_step(steps)
    process = start(disk / "run")
    while last_step(steps) <= before and process.poll() is None:
        time.sleep(0.02)
    began = time.monotonic()
    fault(process if fault is stopped_twice else disk)
    while process.poll() is None and time.monotonic() < began + 240:
        if fault is full:
            full(disk)  # also what an old checkpoint left when it was deleted
        time.sleep(0.02)
    seconds = time.monotonic() - began
    process.kill()
    out, err = process.communicate()
    return {"code": process.returncode, "out": out, "err": err, "seconds": seconds}


def read_only(disk: Path) -> None:
    folder = str(disk / "run" / "checkpoints")
    mount("--bind", folder, folder)
    mount("-o", "remount,bind,ro", folder)


def full(disk: Path) -> None:
    with suppress(OSError), open(disk / "fill", "ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def deleted(disk: Path) -> None:
    while (disk / "run").exists():  # the run may be adding to it
        shutil.rmtree(disk / "run", ignore_errors=True)


def stopped_twice(process: subprocess.Popen) -> None:
    """Ctrl-C, and again before it can have had an effect."""
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def main(disk: Path) -> None:
    mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk))
    ends = {"stopped twice": after(stopped_twice, disk), "read-only": after(read_only, disk)}
    subprocess.run(["umount", str(disk / "run" / "checkpoints")], check=True)
    ends["full"] = after(full, disk)
    (disk / "fill").unlink()
    ends["deleted"] = after(deleted, disk)
    ends["left"] = sorted(str(path.relative_to(disk)) for path in disk.rglob("*"))
    print(json.dumps(ends))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
