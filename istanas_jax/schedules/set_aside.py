"""Keeps trainings apart by their cells: a training of other cells is not taken for one of these.

More searches in a finished folder (`search.runs`) may find better cells. The trainings of the
earlier cells, finished or not, are then moved away, and the new cells are trained.
"""

import json
import re
from collections.abc import Iterable

from istanas_jax.devices.parallel import is_leader, on_all_hosts
from istanas_jax.runs import metrics
from istanas_jax.runs.folder import CHECKPOINTS, EARLIER, GENOTYPE, RESULT, TRAINED, Workdir
from istanas_jax.runs.phases import Phase
from istanas_jax.runs.session import Session
from istanas_jax.space.genotype import Genotype
from istanas_jax.storage.checkpoint_files import CheckpointError, read_about, steps_in
from istanas_jax.storage.files import write_whole

PART = "retrain"  # the phase that trains the cells


def set_aside_others(session: Session, genotype: Genotype) -> None:
    """Move trainings of other cells, and their results, to `earlier/HASH`.

    Call it before genotype.json is written anew: for a training that does not name its cells, as in
    earlier versions, that file does. If a kill interrupts this, the next call completes it.
    """
    if is_leader():
        workdir = session.workdir
        for phase in (Phase(PART, number) for number in _numbers(workdir)):
            made_of = _made_of(workdir, phase)
            if made_of not in (None, genotype.digest):
                _move(session, phase, f"{EARLIER}/{made_of}")
    on_all_hosts(True)


def _parts(phase: Phase) -> tuple[str, str, str]:
    """The files that a training leaves: result, network and checkpoints."""
    return phase.file, f"{TRAINED}/{phase.number}", f"{CHECKPOINTS}/{phase.folder}"


def _numbers(workdir: Workdir) -> list[int]:
    """The numbers of all trainings that have left something."""
    found = set()
    for folder, pattern in (
        ("", rf"{PART}_(\d+)\.json"),
        (TRAINED, r"(\d+)"),
        (CHECKPOINTS, rf"{PART}_(\d+)"),
    ):
        if (workdir / folder).exists():
            names = (re.fullmatch(pattern, path.name) for path in (workdir / folder).iterdir())
            found |= {int(name[1]) for name in names if name}
    return sorted(found)


def _made_of(workdir: Workdir, phase: Phase) -> str | None:
    """The hash of a training's genotype, from the first of its parts that has one."""
    for about in _abouts(workdir / TRAINED, [phase.number]):
        return Genotype.from_dict(about["genotype"]).digest
    result = workdir.read(phase.file) or {}
    checkpoints = workdir / CHECKPOINTS / phase.folder
    for about in (result, *_abouts(checkpoints, reversed(steps_in(checkpoints)))):
        if "genotype_hash" in about:
            return about["genotype_hash"]
    before = workdir.read(GENOTYPE)
    return Genotype.from_dict(before).digest if before else None


def _abouts(folder, steps: Iterable[int]):
    """What steps say about themselves; damaged ones are passed over."""
    for step in steps:
        try:
            yield read_about(folder, step)
        except CheckpointError:
            continue


def _move(session: Session, phase: Phase, there: str) -> None:
    workdir = session.workdir
    for part in (*_parts(phase), RESULT):  # the result is that of all trainings
        if (workdir / part).exists():
            target = workdir / f"{there}/{part}"
            if target.exists():
                target.rmtree() if target.is_dir() else target.unlink()
            target.parent.mkdir(parents=True, exist_ok=True)
            (workdir / part).rename(target)
    rows = [row for row in metrics.read(session.log.path) if row["phase"] == phase.title]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    write_whole(workdir / f"{there}/{phase.folder}.jsonl", text.encode())
    session.log.rewind(phase.title, -1)
    session.say(
        f"{phase.title} trained other cells than those found now: it is kept in {workdir / there}, "
        "and the new cells are trained"
    )
