"""Shows how far a long piece of work is: a bar on a terminal, lines at intervals anywhere else."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from tqdm import tqdm

REDRAW = 0.2  # seconds between two drawings of a bar
BAR = "{desc} {percentage:3.0f} %|{bar}| {n_fmt}/{total_fmt}"


class Progress:
    """Shows how much of `total` is done, the time to come, and a text about the work.

        with Progress("search 0", total=5000, done=step) as progress:
            progress.update(step, "epoch 3/50  1,234 images/s  loss 1.234")

    The time to come is reckoned from what this session did, so resumed work gives `done`.

    Args:
      stream: sys.stderr if None. A stream that is no terminal gets plain lines.
      interval: least number of seconds between two plain lines.
    """

    def __init__(
        self,
        title: str,
        *,
        total: int,
        done: int = 0,
        unit: str = "step",
        stream: TextIO | None = None,
        interval: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._title, self._total = title, total
        self._units = unit if total == 1 else f"{unit}s"
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._start = clock()
        self._done, self._note = done, ""
        # The rate counts from the first update once there is a second: the time to compile, which
        # comes before it, does not come again.
        self._base, self._first = (self._start, done), None
        self._shown = -math.inf
        terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._interval = REDRAW if terminal else interval
        self._bar = None
        if terminal:
            self._bar = _Bar(
                total=total, initial=done, desc=title, file=self._stream, dynamic_ncols=True,
                bar_format=BAR,
            )  # fmt: skip

    def update(self, done: int, note: str = "") -> None:
        """Show that the work has come to `done`. Cheap: call it whenever there is news."""
        now = self._clock()
        self._done, self._note = done, note
        if self._first is None:
            self._first = now, done
        else:
            self._base = self._first
        # The end is shown by close, once.
        if done < self._total and now - self._shown >= self._interval:
            self._shown = now
            self._show(now)

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.clear()
        print(line, file=self._stream, flush=True)
        if self._bar is not None:
            self._bar.refresh()

    def close(self) -> None:
        """Show the last state, which remains on the screen."""
        now = self._clock()
        self._show(now, took=format_seconds(now - self._start))
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _show(self, now: float, took: str | None = None) -> None:
        remaining = self._remaining(now)
        eta = f"ETA {format_seconds(remaining)}" if remaining is not None else None
        if self._bar is not None:
            elapsed = took or format_seconds(now - self._start)
            parts = (elapsed, None if took else eta, self._note)
            escaped = (part.replace("{", "{{").replace("}", "}}") for part in parts if part)
            self._bar.bar_format = "  ".join([BAR, *escaped])
            self._bar.n = self._done
            self._bar.refresh()
            return
        percent = f"{100 * self._done // max(self._total, 1)} %"
        parts = [self._title, f"{self._done}/{self._total} {self._units}", percent]
        parts += [f"in {took}" if took else eta, self._note]
        print("  ".join(part for part in parts if part), file=self._stream, flush=True)

    def _remaining(self, now: float) -> float | None:
        """Seconds to come, or None as long as nothing was done in this session."""
        since, done = self._base
        if self._done <= done or now <= since:
            return None
        return (self._total - self._done) * (now - since) / (self._done - done)


class _Bar(tqdm):
    monitor_interval = 0  # no thread that watches over the bar: it is drawn when there is news


def format_seconds(seconds: float) -> str:
    """Format seconds as hours, minutes and seconds: 1:02:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
