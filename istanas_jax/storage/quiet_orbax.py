"""Drops what orbax prints about a failed save, which it also raises: one message is enough.

Its threads log their tracebacks through absl's logger, tasks that nobody waits for any more through
asyncio's, and tensorstore calls back into an event loop that orbax has closed. Others use the same
channels, so only what comes from orbax is dropped.
"""

import logging
import sys
import traceback

_hook = sys.unraisablehook


def install() -> None:
    """Install the filters; `checkpoints` does so once, when it is imported."""
    logging.getLogger("absl").addFilter(_of_interest)
    logging.getLogger("asyncio").addFilter(_of_others)
    sys.unraisablehook = _except_closed_loops


def _of_interest(record: logging.LogRecord) -> bool:
    """Drop orbax's records; it also logs every step of its work."""
    return "orbax" not in record.pathname


def _of_others(record: logging.LogRecord) -> bool:
    """Drop asyncio's records about exceptions in tasks of orbax that nobody waits for.

    Those of tensorstore have no traceback; their text says which array they are about.
    """
    _, error, trace = record.exc_info or (None, None, None)
    if "tensorstore_spec" in str(error):
        return False
    return not any("orbax" in frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace))


def _except_closed_loops(unraisable) -> None:
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(unraisable.exc_traceback)]
    if unraisable.object is not None or frames[:1] != ["call_soon_threadsafe"]:
        _hook(unraisable)
