"""How long a call takes, and how fast memory is: the clock of all that is measured here."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

CALLS = 5  # at least so many are timed
SECONDS = 0.2  # and more within this time


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


def copy_rate(megabytes: int = 128) -> float:
    """Bytes per second that a program reads and writes which does nothing else."""
    x = jnp.zeros(megabytes * 2**18, jnp.float32)
    program = jax.jit(lambda x: x + 1)
    return 2 * x.nbytes / fastest(lambda: program(x))


def call_seconds() -> float:
    """Seconds of a call of a program that does nothing."""
    x, program = jnp.zeros(()), jax.jit(lambda x: x + 1)
    return fastest(lambda: program(x))
