"""Parts of a run that are done once: what an earlier session finished is read, not repeated."""

from collections.abc import Callable
from functools import partial

from istanas_jax.devices.parallel import from_leader
from istanas_jax.runs.session import Session


def each_once(session: Session, name: str, runs: int, run: Callable[[int], dict]) -> list[dict]:
    """`run` for each number; what was finished in an earlier session is read, not done again."""
    results = []
    for number in range(runs):
        results.append(once(session, f"{name}_{number}.json", partial(run, number)))
    return results


def once(session: Session, file: str, run: Callable[[], dict]) -> dict:
    """`run`, or what it gave in an earlier session, which is in the file."""
    figures = from_leader(session.workdir.read(file))
    if figures is None:
        figures = from_leader(run())
        session.workdir.write(file, figures)
    return figures


def add_seconds(results: list[dict]) -> dict[str, float]:
    """Seconds by kind over several runs of a phase."""
    kinds = {kind for figures in results for kind in figures["seconds"]}
    return {
        kind: round(sum(figures["seconds"].get(kind, 0) for figures in results), 2)
        for kind in sorted(kinds)
    }
