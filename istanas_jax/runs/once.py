"""Parts of a run that are done once: what an earlier session finished is read, not repeated."""

from collections.abc import Callable
from functools import partial

from istanas_jax.devices.parallel import from_leader
from istanas_jax.runs.phases import Phase
from istanas_jax.runs.session import Session


def each_once(
    session: Session, name: str, runs: int, run: Callable[[int, Session], dict]
) -> list[dict]:
    """The results of `run(number, session)` for each number of the phases of this name."""
    phases = [Phase(name, number) for number in range(runs)]
    return [once(session, phase, partial(run, phase.number, session)) for phase in phases]


def once(session: Session, phase: Phase, run: Callable[[], dict]) -> dict:
    """The result of `run`, or the stored one if the phase ended in an earlier session."""
    return kept(session, phase.file, run)


def kept(session: Session, name: str, run: Callable[[], dict]) -> dict:
    """The content of a file of the run's folder, or what `run` gives, which is written there."""
    result = from_leader(session.workdir.read(name))
    if result is None:
        result = from_leader(run())
        session.workdir.write(name, result)
    return result


def add_seconds(results: list[dict]) -> dict[str, float]:
    """Add up the seconds of several phases by what they were spent on."""
    names = {name for result in results for name in result["seconds"]}
    return {
        name: round(sum(result["seconds"].get(name, 0) for result in results), 2)
        for name in sorted(names)
    }
