"""A run's folder: what is in it, and the check that it belongs to this run."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from etils import epath
from ml_collections import ConfigDict

from istanas_jax.runs.file_contents import faults
from istanas_jax.runs.phases import name_in, part_of
from istanas_jax.storage.files import (
    WriteError,
    as_path,
    in_bucket,
    remove_leftovers,
    write_whole,
)

# May change between two starts of one run: they do not touch what a phase computes.
FREE = ("checkpoint.", "log.", "data.dir", "search.runs", "train.runs")
OLD_PARTS = {"recovery", "retrain"}  # one of them is in every config of an earlier layout
# The names in the folder; `phases` names the files of phases.
CONFIG = "config.json"  # makes it a run's folder
STARTED = "started.json"  # command, versions, devices
DATA = "data.json"  # marks by which the images of a run are recognised
METRICS = "metrics.jsonl"  # a row per epoch
REPLAY = "replay.jsonl"  # a row per recovery: see `training.replay_row`
GENOTYPE = "genotype.json"  # the cells found, or given
SIZES = "sizes.json"  # size of the target net with these cells
LATENCY = "latency.json"  # measured, where a budget limits it: see `networks.latency`
RESULT = "result.json"  # written when a run has ended
OPERATION_TIMES = "operations.json"  # what `bench ops` measured, if it was asked to
CURVES, REPORT = "curves.svg", "report.html"
CELLS = "cells"  # their pictures
CHECKPOINTS = "checkpoints"  # a folder per phase
TRAINED = "trained"  # the networks that a run ended with, by number
TENSORBOARD = "tensorboard"
PROFILE = "profile"  # what jax.profiler recorded, by phase
EARLIER = "earlier"  # trainings that were set aside, by the hash of their genotype
LOCK = ".lock"
# The files that a run writes before it has done anything, besides its config.
FIRST = (STARTED, DATA, METRICS, REPLAY, GENOTYPE, SIZES, LATENCY)
FIRST_FOLDERS = (CELLS, CHECKPOINTS, TENSORBOARD)
SHOWN = 8  # differences listed before the rest is only counted


class WorkdirError(ValueError):
    """A folder that cannot be used for a run, said in one sentence."""


class Workdir:
    """The folder of one run, on a disk or in a bucket (gs://); made if it is not there.

    Args:
      writes: False for all but one process of a run: they read, and leave no trace.
    """

    config_file = CONFIG
    free = FREE

    def __init__(self, path: str | os.PathLike, *, writes: bool = True):
        self.path = as_path(path)
        self.writes = writes
        self._lock: TextIO | None = None  # held while `work` is open

    @classmethod
    def open(cls, path: str | os.PathLike, config: ConfigDict, *, writes: bool = True) -> "Workdir":
        """The folder of a run with this config, new or to be continued; nothing is written yet."""
        workdir = cls(path, writes=writes)
        names = workdir._names()
        # After the names: another process of this run writes its config before all else.
        now, before = _plain(config), workdir.read(cls.config_file)
        if before is None:
            # A run that never began may have left these.
            own = (LOCK, f".{cls.config_file}.")
            if any(not name.startswith(own) for name in names):
                raise WorkdirError(
                    f"{path} holds other files and no run: choose an empty or a new folder"
                )
        elif differing := _differences(before, now, cls.free):
            more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
            raise WorkdirError(
                f"{path} holds a run with another config: {', '.join(differing[:SHOWN])}{more}; "
                "choose another folder, or the config it was started with"
            )
        return workdir

    def check_data(self, marks: dict, name: str) -> None:
        """Raise if these marks are not those of the images that the run was begun with."""
        before = self.read(DATA)
        if before is not None and (differing := _differences(before, marks, ())):
            raise WorkdirError(
                f"{name} is not as it was when the run in {self.path} was begun: "
                f"{', '.join(differing[:SHOWN])}; restore the images, or choose another folder "
                "for a new run"
            )

    def _names(self) -> list[str]:
        """The names in the folder; this is the first look at it, so it says what is wrong."""
        try:
            if not self.path.exists():
                return []
            if not self.path.is_dir():
                raise WorkdirError(f"{self.path} is a file, not a folder")
            return [path.name for path in self.path.iterdir()]
        except WorkdirError:
            raise
        except ImportError:
            raise WorkdirError(
                f"{self.path} needs the package gcsfs, see requirements-tpu.txt"
            ) from None
        except Exception as error:  # a bucket raises errors of almost any type
            raise WorkdirError(f"cannot read {self.path}: {error}") from error

    @contextmanager
    def work(self, config: ConfigDict) -> Iterator[None]:
        """Make the folder this run's own; only one process at a time works in it.

        A run that ends before it has done anything, in whatever way, leaves nothing behind.
        """
        if not self.writes:
            yield
            return
        made = [] if in_bucket(self.path) else self._missing_folders()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with self._locked():
                for folder in (self.path, self.path / CELLS):
                    remove_leftovers(folder)
                before = self.read(self.config_file)
                new = before is None
                try:
                    if before != _plain(config):  # other runs, perhaps: it says what was asked for
                        self._begin(config)
                    yield
                except BaseException:
                    with suppress(Exception):  # the folder may not be written to
                        if new and self._is_own() and not self._has_begun():
                            self._clear()
                    raise
        except BaseException:
            for folder in made:
                with suppress(OSError):  # something is in it, or it was not made
                    os.rmdir(folder)
            raise

    def _missing_folders(self) -> list[epath.Path]:
        """The folders that have to be made, the innermost first."""
        path = epath.Path(os.path.abspath(self.path))
        return [folder for folder in (path, *path.parents) if not folder.exists()]

    def _has_begun(self) -> bool:
        """Whether there is something to go on from, or to look at."""
        rows, phases = self.path / METRICS, self.path / CHECKPOINTS
        if rows.exists() and rows.read_bytes():
            return True
        if not phases.exists():
            return False
        steps = (step for phase in phases.iterdir() for step in phase.iterdir())
        return any(step.name.isdigit() for step in steps)

    def _clear(self) -> None:
        """Remove what a run writes before it has done anything."""
        for name in FIRST_FOLDERS:
            if (self.path / name).exists():
                (self.path / name).rmtree()
        for name in (*FIRST, self.config_file, LOCK):
            (self.path / name).unlink(missing_ok=True)
            if not in_bucket(self.path):
                for unfinished in self.path.glob(f".{name}.*"):
                    unfinished.unlink()

    def _begin(self, config: ConfigDict) -> None:
        """Make the folder's first write, which says what is wrong with the folder or bucket."""
        try:
            self.write(self.config_file, _plain(config))
        except Exception as error:  # a bucket raises errors of almost any type
            hint = ", or there is no such bucket" if in_bucket(self.path) else ""
            raise WorkdirError(f"cannot write to {self.path}{hint}: {error}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if in_bucket(self.path):  # where there are no locks
            yield
            return
        with open(self.path / LOCK, "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone = os.fstat(lock.fileno()).st_nlink  # 0: of a run that has just cleared up
            except OSError:
                alone = False
            if not alone:
                raise WorkdirError(f"another process is working in {self.path}")
            self._lock = lock
            try:
                yield
            finally:
                self._lock = None

    def check_own(self) -> None:
        """Raise if the folder was removed or taken over while the run works in it."""
        if not self._is_own():
            raise WriteError(f"{self.path} was deleted or replaced during the run")

    def _is_own(self) -> bool:
        if self._lock is None:
            return True
        try:
            return os.path.samestat(os.fstat(self._lock.fileno()), os.stat(self.path / LOCK))
        except OSError:
            return False

    def __truediv__(self, name: str) -> epath.Path:
        return self.path / name

    def read(self, name: str) -> Any:
        """The object that a JSON file of the folder holds; None if it is not there."""
        file = self.path / name
        if not file.exists():
            return None
        try:
            value = json.loads(file.read_bytes())
        except (ValueError, RecursionError):
            value = None
        fault = "it holds no JSON object"
        if isinstance(value, dict):
            if file.name == self.config_file and OLD_PARTS & value.keys():
                raise WorkdirError(
                    f"{file} was written by an earlier version, whose config keys had other names: "
                    "choose another folder, or use that version"
                )
            fault = next(faults(file.name, value), None)
        if fault:
            raise WorkdirError(f"{file} is damaged, {fault}: {_remedy(file.name)}")
        return value

    def write(self, name: str, value: Any) -> None:
        """Write a JSON file, whole or not at all."""
        if self.writes:
            self.check_own()
            write_whole(self.path / name, (json.dumps(value, indent=1) + "\n").encode())


def _remedy(name: str) -> str:
    if name.endswith(CONFIG):  # a study's config, too
        return "restore it from a copy, or choose another folder"
    if name == "network.json":
        return "export the network again"
    return "delete it, and the command of the run writes it again"


def _plain(config: ConfigDict) -> dict:
    return json.loads(config.to_json_best_effort())


def _differences(before: dict, now: dict, free: tuple[str, ...]) -> list[str]:
    """`key was X, is Y` for every key that matters and has changed."""
    flat_before, flat_now = flat(before), flat(now)
    missing = object()
    said = []
    for key in sorted(flat_before.keys() | flat_now.keys()):
        old, new = flat_before.get(key, missing), flat_now.get(key, missing)
        if old != new and not key.startswith(free):
            was = "was not set" if old is missing else f"was {old}"
            said.append(f"{key} {was}, is {'not set' if new is missing else new}")
    return said


def phase_epochs(config: dict, title: str) -> int | None:
    """The epochs of a phase according to config.json; a method may have its own."""
    part = config.get(part_of(name_in(title))) or {}
    own = part.get(part.get("method")) or {}
    return own.get("epochs", part.get("epochs"))


def flat(tree: dict, prefix: str = "") -> dict[str, Any]:
    """The values of a nested config by `part.key`."""
    values = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            values |= flat(value, f"{prefix}{key}.")
        else:
            values[prefix + key] = value
    return values
