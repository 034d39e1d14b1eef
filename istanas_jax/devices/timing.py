"""How long a call takes, and how fast memory is: the clock of all that is measured here."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

CALLS = 5  # at least so many are timed
SECONDS = 0.2  # and more within this time
TURNS = 12  # of each, where several are compared: some of them find the machine quiet


def fastest(
    call: Callable[[], Any], *, calls: int | None = None, seconds: float | None = None
) -> float:
    """Seconds of the fastest of several calls, after a first one that is not counted.

    What else the machine does only ever adds to a time, so the least is nearest to the truth.
    Numbers that are not given are CALLS and SECONDS.
    """
    calls, seconds = calls or CALLS, SECONDS if seconds is None else seconds
    jax.block_until_ready(call())
    times: list[float] = []
    while len(times) < calls or sum(times) < seconds:
        begin = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - begin)
    return min(times)


def fastest_of_each(
    calls: Sequence[Callable[[], Any]], *, seconds: float | None = None
) -> list[float]:
    """Seconds of the fastest call of each, as `fastest` finds them.

    They take turns: a machine that shares its processor is slower for minutes at a time, which
    must not look like a difference between what is compared.
    """
    seconds = (SECONDS if seconds is None else seconds) / TURNS
    for call in calls:
        jax.block_until_ready(call())  # compiles
    turns = [[fastest(call, calls=2, seconds=seconds) for call in calls] for _ in range(TURNS)]
    return [min(times) for times in zip(*turns, strict=True)]


def copy_rate(megabytes: int = 128) -> float:
    """Bytes per second that a program reads and writes which does nothing else."""
    x = jnp.zeros(megabytes * 2**18, jnp.float32)
    program = jax.jit(lambda x: x + 1)
    return 2 * x.nbytes / fastest(lambda: program(x))


def call_seconds() -> float:
    """Seconds of a call of a program that does nothing."""
    x, program = jnp.zeros(()), jax.jit(lambda x: x + 1)
    return fastest(lambda: program(x))
