"""Trainings belong to the cells they were made of: those of other cells are not taken for them.

More searches in a finished folder (`search.runs`) may find better cells. What was trained of the
cells before them, finished or not, then leaves the way, and the new cells are trained.
"""

import json
import re
from collections.abc import Iterable

from istanas_jax.devices.parallel import is_leader, on_all_hosts
from istanas_jax.runs import metrics
from istanas_jax.runs.folder import Workdir
from istanas_jax.runs.session import Session
from istanas_jax.runs.trained_network import FOLDER
from istanas_jax.space.genotype import Genotype
from istanas_jax.storage.checkpoint_files import CheckpointError, read_about, steps_in
from istanas_jax.storage.files import write_whole

EARLIER = "earlier"  # the folder of what was set aside, by the hash of its genotype
RESULT = "result.json"


def set_aside_others(session: Session, genotype: Genotype) -> None:
    """Move retrainings of other cells than these, and what came of them, to `earlier/HASH`.

    To be called before genotype.json is written anew: it tells of what a retraining is that does
    not say so itself, as those of earlier versions. What a kill interrupts, the next call does.
    """
    if is_leader():
        workdir = session.workdir
        for number in _numbers(workdir):
            made_of = _made_of(workdir, number)
            if made_of not in (None, genotype.digest):
                _move(session, number, f"{EARLIER}/{made_of}")
    on_all_hosts(True)


def _parts(number: int) -> dict[str, str]:
    """Where a retraining is in the folder of its run."""
    return {
        "figures": f"retrain_{number}.json",
        "trained": f"{FOLDER}/{number}",
        "checkpoints": f"checkpoints/retrain_{number}",
    }


def _numbers(workdir: Workdir) -> list[int]:
    """Of all retrainings that have left something."""
    found = set()
    for folder, pattern in (
        ("", r"retrain_(\d+)\.json"),
        (FOLDER, r"(\d+)"),
        ("checkpoints", r"retrain_(\d+)"),
    ):
        if (workdir / folder).exists():
            names = (re.fullmatch(pattern, path.name) for path in (workdir / folder).iterdir())
            found |= {int(name[1]) for name in names if name}
    return sorted(found)


def _made_of(workdir: Workdir, number: int) -> str | None:
    """The hash of a retraining's genotype, as the first of its parts tells it."""
    parts = _parts(number)
    for about in _abouts(workdir / FOLDER, [number]):
        return Genotype.from_dict(about["genotype"]).digest
    figures = workdir.read(parts["figures"]) or {}
    checkpoints = workdir / parts["checkpoints"]
    for about in (figures, *_abouts(checkpoints, reversed(steps_in(checkpoints)))):
        if "genotype_hash" in about:
            return about["genotype_hash"]
    before = workdir.read("genotype.json")
    return Genotype.from_dict(before).digest if before else None


def _abouts(folder, steps: Iterable[int]):
    """What steps say about themselves; damaged ones are passed over."""
    for step in steps:
        try:
            yield read_about(folder, step)
        except CheckpointError:
            continue


def _move(session: Session, number: int, there: str) -> None:
    workdir, phase = session.workdir, f"retrain {number}"
    for part in (*_parts(number).values(), RESULT):  # the result is that of all retrainings
        if (workdir / part).exists():
            target = workdir / f"{there}/{part}"
            if target.exists():
                target.rmtree() if target.is_dir() else target.unlink()
            target.parent.mkdir(parents=True, exist_ok=True)
            (workdir / part).rename(target)
    rows = [row for row in metrics.read(session.log.path) if row["phase"] == phase]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    write_whole(workdir / f"{there}/{phase.replace(' ', '_')}.jsonl", text.encode())
    session.log.rewind(phase, -1)
    session.say(
        f"{phase} is of other cells than those found now: it is kept in {workdir / there}, and "
        "the new cells are trained"
    )
