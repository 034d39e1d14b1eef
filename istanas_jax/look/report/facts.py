"""What the folder of a run tells about it, finished or not, for the pages of `report`."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from etils import epath

from istanas_jax.look.report import replay
from istanas_jax.runs import metrics, phases
from istanas_jax.runs.folder import (
    CONFIG,
    GENOTYPE,
    LOCK,
    METRICS,
    OPERATION_TIMES,
    REPLAY,
    RESULT,
    SIZES,
    STARTED,
    TRAINED,
    Workdir,
    flat,
)
from istanas_jax.runs.phases import Phase, name_in, part_of, without_stage
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.spaces import Space, read_space
from istanas_jax.storage.checkpoint_files import CheckpointError, read_about
from istanas_jax.storage.files import as_path, in_bucket
from istanas_jax.training.replay_row import ReplayRow, genotype_of
from istanas_jax.training.search_accuracy import read_search


@dataclass
class Facts:
    """What is known of one run; what it has not reached or recorded is None or empty."""

    path: str
    name: str
    config: dict
    state: str  # "finished", "searched", "running", "stopped"
    started: dict  # command, config, overrides, defaults, versions, commit
    rows: list[dict]  # rows of metrics.jsonl
    result: dict | None
    ended: dict[str, dict]  # results of the phases that have ended, by title: "search 0"
    searches: dict[str, list[ReplayRow]]  # rows of replay.jsonl, by search
    when: float | None  # the last sign of life, in seconds since 1970
    genotype: Genotype | None = None
    coefficients: list | None = None  # (cells, nodes, s), strongest first
    sizes: dict | None = None  # of the target net, see `schedules.results.sizes_of`
    operations: dict | None = None  # their times, if `bench ops` left them in the folder
    versions: dict = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)  # about what could not be read

    @property
    def space(self) -> Space:
        """The space that was searched; that of DARTS if the run says nothing about it."""
        return read_space(self.config.get("space") or {})

    @property
    def schedule(self) -> str:
        return str(self.config.get("schedule", "run"))

    @property
    def seconds(self) -> dict[str, dict[str, float]]:
        """Seconds by phase and purpose; a phase under way counts up to its last finished epoch."""
        spent = {row["phase"]: row["seconds"] for row in self.rows if row.get("seconds")}
        for name in self.ended:  # a phase includes its stages
            spent = {
                phase: s
                for phase, s in spent.items()
                if phase == name or without_stage(phase) != name
            }
        return spent | {title: result["seconds"] for title, result in self.ended.items()}

    @property
    def total_seconds(self) -> float | None:
        spent = [seconds.get("total", 0) for seconds in self.seconds.values()]
        return sum(spent) if spent else None


def is_run(folder: str | os.PathLike) -> bool:
    return (as_path(folder) / CONFIG).exists()


def gather(path: str | os.PathLike) -> Facts:
    """Gather all facts of the run in this folder; raises a ValueError if there is none."""
    workdir = Workdir(path, writes=False)
    folder = workdir.path
    config = _json(workdir, CONFIG)
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds no run: there is no {CONFIG} in it")
    rows_file = folder / METRICS
    facts = Facts(
        path=os.fspath(path),
        name=PurePath(os.path.abspath(path) if not in_bucket(path) else path).name,
        config=config,
        state="",
        started=_json(workdir, STARTED) or {},
        rows=metrics.read(rows_file) if rows_file.exists() else [],
        result=_json(workdir, RESULT),
        ended=_ended(workdir, config),
        searches={},
        when=last_sign(folder),
    )
    facts.state = state(workdir, facts)
    try:
        facts.searches = replay.read(folder)
    except (ValueError, KeyError, TypeError) as error:
        facts.remarks.append(f"{REPLAY} cannot be read: {error}.")
    _find_genotype(workdir, facts)
    _read_versions(folder, facts)
    sizes = _json(workdir, SIZES)
    if sizes and facts.genotype and sizes["genotype_hash"] == facts.genotype.digest:
        facts.sizes = sizes
    facts.operations = _json(workdir, OPERATION_TIMES)
    return facts


def state(workdir: Workdir, facts: Facts) -> str:
    """The state of the run in a word; in a bucket, without a lock, a running one looks stopped."""
    if facts.result is not None:
        return "finished"
    if is_locked(workdir.path / LOCK):
        return "running"
    runs = (facts.config.get("search") or {}).get("runs")
    searched = all(Phase("search", number).title in facts.ended for number in range(runs or 0))
    return "searched" if runs and searched and not _has_begun(facts, "retrain") else "stopped"


def last_sign(folder: epath.Path) -> float | None:
    """When the run last wrote one of the files that it writes as it goes."""
    names = (CONFIG, METRICS, REPLAY, RESULT)
    times = [(folder / name).stat().mtime for name in names if (folder / name).exists()]
    return float(max(times)) if times else None


def differences(facts: Facts) -> dict[str, Any] | None:
    """The defaults of the keys whose values differ from the config file, as the run noted them
    when it started; None if it did not. The file itself is a program, and is never run here."""
    default = facts.started.get("defaults")
    if not isinstance(default, dict):
        return None
    before, now = flat(default), flat(facts.config)
    keys = sorted(before.keys() | now.keys())
    return {key: before.get(key) for key in keys if before.get(key) != now.get(key)}


def _json(workdir: Workdir, name: str) -> Any:
    try:
        return workdir.read(name)
    except ImportError:
        raise ValueError(
            f"{workdir.path} needs the package gcsfs, see requirements-tpu.txt"
        ) from None


def _ended(workdir: Workdir, config: dict) -> dict[str, dict]:
    ended = {}
    for name in phases.NAMES:
        for number in range((config.get(part_of(name)) or {}).get("runs", 1)):
            phase = Phase(name, number)
            result = _json(workdir, phase.file)
            if result is not None:
                ended[phase.title] = read_search(result, config) if name == "search" else result
    return ended


def _has_begun(facts: Facts, name: str) -> bool:
    return any(name_in(row["phase"]) == name for row in facts.rows)


def is_locked(path: epath.Path) -> bool:
    """Whether a process works in the folder."""
    if in_bucket(path) or not path.exists():
        return False
    with open(path) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _find_genotype(workdir: Workdir, facts: Facts) -> None:
    """Find the run's genotype, or that of the last recovery, with coefficients if known."""
    found = _json(workdir, GENOTYPE)
    searches = [result for title, result in facts.ended.items() if name_in(title) == "search"]
    if found is not None:
        facts.genotype = Genotype.from_dict(found)
        same = [s for s in searches if Genotype.from_dict(s["genotype"]) == facts.genotype]
        facts.coefficients = same[0]["coefficients"] if same else None
    elif facts.searches:
        last = list(facts.searches.values())[-1][-1]
        facts.genotype = genotype_of(last)
        facts.coefficients = last["coefficients"]


def _read_versions(folder: epath.Path, facts: Facts) -> None:
    """Versions with which the run was started or, for older runs, its network was written."""
    facts.versions = dict(facts.started.get("versions") or {})
    if (folder / TRAINED).exists():
        try:
            facts.versions = facts.versions or read_about(folder / TRAINED).get("versions", {})
        except (CheckpointError, KeyError) as error:
            facts.remarks.append(f"The trained network cannot be read: {error}.")
