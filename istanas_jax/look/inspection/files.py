"""Checkpoints to look into: found from a path, and read as far as asked for."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from etils import epath

from istanas_jax.runs.folder import CHECKPOINTS, CONFIG, TRAINED, Workdir
from istanas_jax.runs.phases import phases_named
from istanas_jax.storage.checkpoint_files import (
    COMMITTED,
    FORMAT,
    CheckpointError,
    absolute,
    load_signed,
    parse_type_and_shape,
    read_arrays,
    steps_in,
    verify,
)
from istanas_jax.storage.files import as_path, in_bucket

T = TypeVar("T")
AT_ONCE = 32 << 20  # bytes of arrays in memory at a time


@dataclass(frozen=True)
class Checkpoint:
    """One step, and the run it belongs to."""

    path: epath.Path
    workdir: Workdir | None
    about: dict

    @property
    def leaves(self) -> dict[str, list]:
        return self.about["leaves"]

    @functools.cached_property
    def step(self) -> int:
        """The number in the folder's name or, if that was changed, the stored one."""
        if number := re.search(r"\d+$", self.path.name):
            return int(number[0])
        names = [name for name in ("step", "weights.step") if name in self.leaves]
        if not names:
            raise CheckpointError(f"{self.path} is not named by its step")
        return int(self.read(names)[names[0]])

    def read(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Read these arrays and check them."""
        try:
            return read_arrays(self.path, self.leaves, names)
        except Exception as error:  # a damaged file surfaces as almost any of them
            raise _damaged(self.path, error) from error

    def each(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yield these arrays one after the other, with few of them in memory."""
        some, size = [], 0
        for name in names:
            some.append(name)
            size += size_of(self.leaves[name])["bytes"]
            if size >= AT_ONCE:
                yield from self.read(some).items()
                some, size = [], 0
        yield from self.read(some).items()

    def file(self, name: str):
        """A JSON file of the run's folder; None if there is none."""
        if self.workdir is None:
            return None
        return self.workdir.read(name)

    @functools.cached_property
    def config(self) -> dict:
        return self.file(CONFIG) or {}


class DamagedError(CheckpointError):
    """A checkpoint that is not as it was written, said in one sentence."""


def open_checkpoint(path: str | os.PathLike) -> Checkpoint:
    """The step that the path names, or the newest below it."""
    return _open_step(next(_steps_of(path)))


def newest_whole(path: str | os.PathLike, use: Callable[[Checkpoint], T]) -> tuple[T, list[str]]:
    """Apply `use` to the step that the path names, or to the newest whole one below it.

    A run that goes on chooses its checkpoint in the same way. The list that is returned beside
    the result says what is wrong with each newer step.
    """
    damaged = []
    for step in _steps_of(path):
        try:
            return use(_open_step(step)), damaged
        except DamagedError as error:
            damaged.append(str(error))
    raise DamagedError(damaged[0])


def _steps_of(path: str | os.PathLike) -> Iterator[epath.Path]:
    """The step that the path names, or those below it, the newest first; at least one."""
    path = absolute(as_path(path))
    names = _names(path)
    if names & {"state", "about", COMMITTED}:
        yield path
        return
    if path.name == CHECKPOINTS and CHECKPOINTS not in names:
        path, names = path.parent, {CHECKPOINTS}
    phases = [path]
    if CHECKPOINTS in names:
        folder = path / CHECKPOINTS
        phases = [folder / phase for phase in reversed(phases_in(folder))]
    found = [phase / str(step) for phase in phases for step in reversed(steps_in(phase))]
    if found:
        yield from found
    elif {CONFIG, CHECKPOINTS} & names or path.parent.name == CHECKPOINTS:
        raise CheckpointError(f"{path} belongs to a run that has not saved a checkpoint yet")
    else:
        raise CheckpointError(f"{path} {'holds' if names else 'is empty: it holds'} no checkpoint")


def _names(path: epath.Path) -> set[str]:
    """The names in the folder; this is the first look at it, so it says what is wrong."""
    try:
        if not path.exists():
            raise CheckpointError(f"{path} does not exist")
        if not path.is_dir():
            raise CheckpointError(f"{path} is a file, not the folder of a run or a checkpoint")
        return {child.name for child in path.iterdir()}
    except CheckpointError:
        raise
    except ImportError:
        raise CheckpointError(f"{path} needs the package gcsfs, see requirements-tpu.txt") from None
    except Exception as error:  # a bucket raises errors of almost any type
        raise CheckpointError(f"cannot read {path}: {error}") from error


def phases_in(folder: epath.Path) -> list[str]:
    """The folders of steps, in the order in which a run goes through them."""
    return [phase.folder for phase in phases_named(path.name for path in folder.iterdir())]


def _open_step(path: epath.Path) -> Checkpoint:
    unfinished = ".orbax-checkpoint-tmp" in path.name
    if unfinished or (in_bucket(path) and not (path / COMMITTED).exists()):
        raise CheckpointError(f"{path} was still being written when its run was stopped")
    try:
        signed = load_signed(path)
    except FileNotFoundError:
        raise DamagedError(f"{path} is no checkpoint of istanas_jax: about is missing") from None
    except (OSError, ValueError, TypeError) as error:
        raise _damaged(path, error) from error
    # Before its checksum: another version may compute it in another way.
    if signed.get("format") != FORMAT:
        raise CheckpointError(f"{path} {_another_format(signed)}")
    try:
        about = verify(signed)
    except ValueError as error:
        raise _damaged(path, error) from error
    phase = path.parent
    above = {CHECKPOINTS: phase.parent.parent, TRAINED: phase.parent}
    workdir = above.get(TRAINED if phase.name == TRAINED else phase.parent.name)
    return Checkpoint(path, workdir and Workdir(workdir, writes=False), about)


def _another_format(signed: dict) -> str:
    number = signed.get("format")
    if not isinstance(number, int):
        return "is no checkpoint of istanas_jax: its about has no format"
    writer = signed.get("versions")
    writer = writer.get("istanas_jax", "?") if isinstance(writer, dict) else "?"
    age = "a newer" if number > FORMAT else "an older"
    return f"has format {number}, of {age} istanas_jax ({writer}); this one reads format {FORMAT}"


def _damaged(path: epath.Path, error: Exception) -> DamagedError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return DamagedError(f"checkpoint {path} is damaged: {reason}")


def size_of(leaf: list) -> dict[str, int]:
    """Numbers and bytes of an array as "about" lists it, without reading it."""
    dtype, shape = parse_type_and_shape(leaf[0])
    numbers = int(np.prod(shape, dtype=int))
    return {"numbers": numbers, "bytes": numbers * dtype.itemsize}
