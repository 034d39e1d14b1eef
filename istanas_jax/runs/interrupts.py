"""Ctrl-C and SIGTERM, the signal of preemption, as requests that are read between two steps."""

import signal
from typing import Any


class Interrupted(Exception):
    """The run was asked to stop, and has saved what it did."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.number = number  # number of the signal


class Stop:
    """While it is open, `signal` is the number of the signal that came, or None."""

    def __init__(self):
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stop":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, _) -> None:
        if self.signal is not None:  # asked twice: do not wait for the step
            raise KeyboardInterrupt
        self.signal = number
