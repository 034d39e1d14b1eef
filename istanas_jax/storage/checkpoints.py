"""Checkpoints of a run: written in the background, checked to the byte when they are read.

A folder of step folders, as orbax lays them out: item "state" (the arrays) and item "about" (JSON:
what the driver says of the run, versions, and a checksum of every array and of itself). Besides
them there may be `corrupt-STEP`, a step that could not be read and that `restore` put out of the
way, and, while a step is written anew, `replaced-STEP`.
"""

import contextlib
import dataclasses
import datetime
import errno
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import Self

import jax
import orbax.checkpoint as ocp
from etils import epath

from istanas_jax import __version__
from istanas_jax.devices.parallel import is_leader, on_all_hosts
from istanas_jax.storage import quiet_orbax
from istanas_jax.storage.checkpoint_files import (
    FORMAT,
    CheckpointError,
    absolute,
    crc32,
    load_signed,
    sign,
    type_and_shape,
    verify,
)
from istanas_jax.storage.checkpoint_reading import Restored, named, restore
from istanas_jax.storage.files import in_bucket

VERSIONS = {
    name: metadata.version(name)
    for name in ("libtpu", "jaxlib", "jax", "flax", "optax", "orbax-checkpoint")
    if name != "libtpu" or find_spec(name)  # only TPU hosts have it
}
VERSIONS["istanas_jax"] = __version__
quiet_orbax.install()
NOTES = "_CHECKPOINT_METADATA"  # file that orbax adds to each step


class Checkpoints:
    """The checkpoints in `folder`; a context manager, since leaving it waits for the last save.

    Args:
      folder: a path or gs:// address; made if it is not there.
      keep: how many of the last steps stay. The best, by score, stays besides.
      every_minutes: `due_by_clock` is true this long after the last save, or after opening.
      every_steps: `due_by_steps` is true this many steps after the last save; 0 means never.
      warn: called with a sentence about each step that is skipped.
      clock: returns seconds.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        *,
        keep: int,
        every_minutes: float,
        every_steps: int = 0,
        warn: Callable[[str], object] = print,
        clock: Callable[[], float] = time.monotonic,
    ):
        if keep < 1:
            raise CheckpointError(f"keep = {keep}: at least one checkpoint must be kept")
        self.seconds_blocked = 0.0  # total wall time for which `save` held its caller
        self.folder = absolute(folder)
        self._every_seconds = 60 * every_minutes
        self._every_steps = every_steps
        self._warn = warn
        self._clock = clock
        self._scores: dict[int, float | None] = {}
        with self._telling():
            self._prepare()
            self._manager = ocp.CheckpointManager(self.folder, options=self._options(keep))
        # Read here and not by orbax (best_fn), which fails to open on a damaged score.
        for step in self._manager.all_steps():
            with contextlib.suppress(Exception):  # `restore` is the one to complain
                self._scores[step] = verify(load_signed(self.folder / str(step)))["score"]
        self._last_step = self.latest_step() or 0
        self._last_time = clock()

    def _prepare(self) -> None:
        """Make the folder, and tidy up after a run that was killed."""
        if is_leader():
            self.folder.mkdir(parents=True, exist_ok=True)
            for unfinished in self.folder.glob(f"*{ocp.utils.TMP_DIR_SUFFIX}*"):
                unfinished.rmtree()
            for step in self.folder.glob("[0-9]*"):
                _drop_garbled_notes(step)
        self._settle_replaced()

    def _options(self, keep: int) -> ocp.CheckpointManagerOptions:
        return ocp.CheckpointManagerOptions(
            preservation_policy=_LastAndBest(keep, self._scores),
            cleanup_tmp_directories=True,  # for gs://, where they have no name of their own
            # Otherwise each array has a thread that waits for its folder, and when that cannot be
            # made they keep the process from ending for 20 minutes.
            async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error) -> None:
        try:
            with self._telling():
                self._manager.wait_until_finished()
                self._settle_replaced()
        finally:
            with contextlib.suppress(Exception):  # repeats the error that has just been raised
                self._manager.close()

    def latest_step(self) -> int | None:
        """The newest step, even if it is still being written."""
        return self._manager.latest_step()

    def due_by_clock(self) -> bool:
        """Whether `every_minutes` have passed. One of several processes should decide."""
        return self._clock() - self._last_time >= self._every_seconds

    def due_by_steps(self, step: int) -> bool:
        """Whether `every_steps` have been done."""
        return 0 < self._every_steps <= step - self._last_step

    def save(
        self, step: int, state, *, about: dict, score: float | None = None, wait: bool = False
    ) -> None:
        """Start to write `state` (a pytree of arrays), in place of a save of the same step.

        The caller may donate the arrays at once. A save that is under way is waited for first.

        Args:
          about: JSON-able; `format`, `versions`, `xla_flags`, `written`, `score` and `leaves` are
            added.
          score: the step with the highest is kept, the later if two are equal.
        """
        start = time.perf_counter()
        about = about | {
            "format": FORMAT,
            "versions": VERSIONS,
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            "written": datetime.datetime.now(datetime.UTC).isoformat(),
            "score": None if score is None else float(score),
            "leaves": {name: [type_and_shape(x), crc32(x)] for name, x in named(state)},
        }
        signed = sign(about)
        with self._telling():
            self._manager.wait_until_finished()
            if self._is_gone():
                raise FileNotFoundError(self.folder)  # orbax would make it anew
            self._settle_replaced()
            if step in self._manager.all_steps():
                self._move(step, f"replaced-{step}")
        self._scores[step] = about["score"]
        # orbax keeps views of the arrays of a CPU, not copies. JAX does not reuse a buffer that
        # has such a view, donated or not, so they hold what they held; a test makes sure of it.
        items = {"state": ocp.args.StandardSave(state), "about": ocp.args.JsonSave(signed)}
        with self._telling():
            self._manager.save(step, args=ocp.args.Composite(**items), force=True)
        if wait:
            self._wait()
        self._last_step, self._last_time = step, self._clock()
        self.seconds_blocked += time.perf_counter() - start

    def restore(self, like) -> Restored | None:
        """The newest step that is whole, placed as `like` is; None if there is no step at all.

        Damaged steps are passed over with a warning and, once an older one has been read, renamed
        to `corrupt-STEP`, so that the run can save that step again.

        Args:
          like: arrays or ShapeDtypeStructs; those without a sharding go to the default device.
        """
        self._wait()
        damaged = {}
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                state, about = restore(self.folder / str(step), like)
            except CheckpointError:
                raise
            except Exception as error:  # a flipped bit surfaces as almost any of them
                damaged[step] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            if not on_all_hosts(step not in damaged):
                damaged.setdefault(step, "for another host")
                continue
            for bad, why in damaged.items():
                with self._telling():
                    self._move(bad, f"corrupt-{bad}")
                self._warn(
                    f"checkpoint {self.folder / str(bad)} is damaged ({why}) and renamed to "
                    f"corrupt-{bad}; using step {step} instead"
                )
            self._last_step = step
            return Restored(step, state, about)
        if damaged:
            reasons = "; ".join(f"{step}: {why}" for step, why in damaged.items())
            raise CheckpointError(f"no checkpoint in {self.folder} can be read ({reasons})")
        return None

    def _wait(self) -> None:
        with self._telling():
            self._manager.wait_until_finished()

    @contextlib.contextmanager
    def _telling(self):
        try:
            yield
        except Exception as error:
            if _of_other_hosts(error):
                raise  # nothing is wrong with the disk
            reason = _reason(error)
            if self._is_gone() or reason == os.strerror(errno.ENOENT):
                raise CheckpointError(
                    f"{self.folder} was deleted, or a part of it, during the run"
                ) from error
            raise CheckpointError(
                f"could not write to {self.folder}: {reason}; what was saved before is kept, and "
                "the same command continues once that is fixed"
            ) from error

    def _is_gone(self) -> bool:
        return is_leader() and not in_bucket(self.folder) and not self.folder.exists()

    def _move(self, step: int, name: str) -> None:
        """Rename the folder of a step, so that it no longer counts as one."""
        if is_leader():
            if (self.folder / name).exists():
                (self.folder / name).rmtree()
            (self.folder / str(step)).rename(self.folder / name)
        ocp.multihost.sync_global_processes(name)
        self._scores.pop(step, None)
        self._manager.reload()

    def _settle_replaced(self) -> None:
        """Drop the old version of a step, or take it back; call it only when no save is running."""
        if is_leader():
            for old in self.folder.glob("replaced-*"):
                step = self.folder / old.name.removeprefix("replaced-")
                old.rmtree() if step.exists() else old.rename(step)
        ocp.multihost.sync_global_processes("settle_replaced")


def _drop_garbled_notes(step: epath.Path) -> None:
    """Remove a damaged file of orbax's own notes, which would keep it from opening any step.

    Nothing here needs those notes.
    """
    file = step / NOTES
    if not file.exists():
        return
    known = {field.name for field in dataclasses.fields(ocp.metadata.StepMetadata)}
    try:
        notes = json.loads(file.read_bytes())
        times = [notes[key] for key in notes if key.endswith("_nsecs")]
        whole = notes.keys() <= known and all(isinstance(time, int) for time in times)
    except (ValueError, TypeError, AttributeError):
        whole = False
    if not whole:
        file.unlink()


def _of_other_hosts(error: Exception) -> bool:
    """Whether hosts that save together lost each other, which `devices.hosts` reports."""
    words = str(error)
    of_disk = isinstance(error, OSError) or "tensorstore_spec" in words or "os_error_code" in words
    return jax.process_count() > 1 and not of_disk and bool(re.match("[A-Z_]+: ", words))


def _reason(error: Exception) -> str:
    """Why a file could not be written, in the words of the system."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    if code := re.search(r"os_error_code='(\d+)'", str(error)):  # of tensorstore
        return os.strerror(int(code[1]))
    return " ".join(str(error).split())[:200]


@dataclasses.dataclass
class _LastAndBest(ocp.checkpoint_managers.PreservationPolicy):
    """Keep the last n steps and the one with the highest score."""

    n: int
    scores: dict[int, float | None]  # shared with Checkpoints, which fills it

    def should_preserve(self, checkpoints: Sequence, *, context) -> list[bool]:
        steps = sorted(checkpoint.step for checkpoint in checkpoints)
        scores = {s: x for s in steps if (x := self.scores.get(s)) is not None and x == x}  # no NaN
        kept = {*steps[-self.n :], *sorted(scores, key=lambda s: (scores[s], s))[-1:]}
        return [checkpoint.step in kept for checkpoint in checkpoints]
