"""Checkpoints damaged at random: the newest that is whole must be found, and be what was saved."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from istanas_jax.storage.checkpoint_files import read_about, read_arrays, steps_in
from istanas_jax.storage.checkpoints import Checkpoints


def flip(file: Path, rng: random.Random, _: list[Path]) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(rng.randint(1, 4)):
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def truncate(file: Path, rng: random.Random, _: list[Path]) -> None:
    file.write_bytes(file.read_bytes()[: rng.randrange(max(1, file.stat().st_size))])


def zero(file: Path, rng: random.Random, _: list[Path]) -> None:
    """Zero the end of a file, as a power failure leaves what was not written yet."""
    size = file.stat().st_size
    begin = rng.randrange(max(1, size))
    file.write_bytes(file.read_bytes()[:begin] + bytes(size - begin))


def delete(file: Path, rng: random.Random, _: list[Path]) -> None:
    file.unlink()


def swap(file: Path, rng: random.Random, files: list[Path]) -> None:
    """Swap contents with another file, of this step or of another that may be damaged."""
    other = rng.choice(files)
    content = other.read_bytes()
    other.write_bytes(file.read_bytes())
    file.write_bytes(content)


def delete_folder(file: Path, rng: random.Random, _: list[Path]) -> None:
    shutil.rmtree(file.parent)


DAMAGES = {
    "flipped bits": flip,
    "cut short": truncate,
    "zeros at the end": zero,
    "a file deleted": delete,
    "two files swapped": swap,
    "a folder deleted": delete_folder,
}


def run(source: Path, damages: int, rng: random.Random, say: Callable[[str], object]) -> list[dict]:
    """Damage fresh copies of a folder of steps; return a row per kind of damage."""
    rows = {damage: {"damage": damage, "times": 0, "harmless": 0, "older": 0, "lost": []}
            for damage in DAMAGES}  # fmt: skip
    good = _good(source)
    copy = source.parent / "damaged"
    for number in range(damages):
        damage = list(DAMAGES)[number % len(DAMAGES)]
        row = rows[damage]
        row["times"] += 1
        shutil.copytree(source, copy)
        outcome = _damage_and_restore(copy, DAMAGES[damage], good, rng)
        if outcome in ("harmless", "older"):
            row[outcome] += 1
        else:
            row["lost"].append(f"damage {number}, {damage}: {outcome}")
        shutil.rmtree(copy)
    say(f"{damages} damages done")
    return list(rows.values())


def _good(source: Path) -> dict[int, dict[str, np.ndarray]]:
    """The arrays of each step as they were saved."""
    good = {}
    for step in steps_in(source):
        leaves = read_about(source, step)["leaves"]
        good[step] = read_arrays(source / str(step), leaves)
    if len(good) < 2:
        raise ValueError(f"{source} holds {len(good)} steps: there is none to fall back to")
    return good


def _damage_and_restore(folder: Path, damage, good: dict, rng: random.Random) -> str:
    """Damage the newest step or the newest two, never all; say how it ended."""
    steps = sorted(good, reverse=True)
    number = rng.randint(1, len(steps) - 1)
    files = [p for s in steps[:number] for p in (folder / str(s)).rglob("*") if p.is_file()]
    for step in steps[:number]:
        own = [path for path in files if path.is_relative_to(folder / str(step)) and path.exists()]
        if own:
            damage(rng.choice(own), rng, [path for path in files if path.exists()])
    arrays = good[steps[0]]
    like = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in arrays.items()}
    try:
        with Checkpoints(
            folder, keep=len(steps), every_minutes=60, warn=lambda _: None
        ) as checkpoints:
            restored = checkpoints.restore(like)
    except Exception as error:  # whatever it is, the run would not go on
        return f"{type(error).__name__}: {error}"
    if restored is None or restored.step < steps[number]:
        return f"step {restored and restored.step} was taken, but step {steps[number]} is whole"
    if any(not _equal(restored.state[name], x) for name, x in good[restored.step].items()):
        return f"step {restored.step} is not what was saved"
    return "harmless" if restored.step == steps[0] else "older"


def _equal(one, other: np.ndarray) -> bool:
    one = np.asarray(one)
    same = (one.dtype, one.shape) == (other.dtype, other.shape)
    return same and one.tobytes() == other.tobytes()
