"""The loop around the steps: epochs, checkpoints, progress, guards; the same for every phase."""

import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Int

from istanas_jax.devices.parallel import is_leader
from istanas_jax.runs.folder import CHECKPOINTS
from istanas_jax.runs.interrupts import Interrupted
from istanas_jax.runs.phases import Phase
from istanas_jax.runs.profiling import Profiler, Seconds
from istanas_jax.runs.progress import Progress
from istanas_jax.runs.session import Session
from istanas_jax.storage.checkpoints import Checkpoints
from istanas_jax.training.errors import TrainingError
from istanas_jax.training.states import Totals

# Steps given to the device before the host waits for the oldest of them: enough for the device to
# have work at all times, few enough to stop soon after something went wrong.
AHEAD = 2


class Task(Protocol):
    """What a phase brings to the loop."""

    phase: Phase
    name: str  # the title of the phase
    epochs: int
    steps_per_epoch: int
    batch: int
    notes: dict[str, Any]  # about the epoch so far, JSON-able; kept in checkpoints
    memory: dict[str, Any]  # the same for the whole phase; "stopped" in it ends the phase
    origin: dict[str, Any]  # JSON-able: what its checkpoints are of, besides the config
    finished: bool  # set by `before`: there is nothing left to do

    def compile(self, state) -> None: ...

    def batches(self, epoch: int, first: int) -> Iterator[tuple[np.ndarray, ...]]: ...

    def before(self, state, step: int) -> Any: ...

    def step(self, state, *batch) -> tuple[Any, Totals]: ...

    def end_epoch(self, state) -> tuple[Any, dict[str, Any]]:
        """The state for the next epoch, and results of this one; `heldout_accuracy` is a score."""

    def check(self, step: int) -> None:
        """Raise if something went wrong up to this step that the loss does not show."""

    def learning_rate(self, step: int) -> float: ...

    def progress_note(self) -> str: ...


class Fitted(NamedTuple):
    """The result of `fit`."""

    state: Any
    seconds: dict[str, float]  # all in all and by purpose, those of earlier sessions too


def fit(task: Task, state, session: Session) -> Fitted:
    """Train to the end of the task's epochs, from where its last checkpoint stands.

    Args:
      state: the state before the first step, used if there is no checkpoint.
    """
    settings = session.config.checkpoint
    with Checkpoints(
        session.workdir / CHECKPOINTS / task.phase.folder,
        keep=settings.keep_last,
        every_minutes=settings.every_minutes,
        every_steps=settings.every_steps,
        warn=session.say,
    ) as checkpoints:
        fitting = _Fit(task, session, checkpoints)
        state = fitting.run(session.devices.replicate(state))
        return Fitted(state, fitting.all_seconds())


class _Fit:
    def __init__(self, task: Task, session: Session, checkpoints: Checkpoints):
        self.task, self.session, self.checkpoints = task, session, checkpoints
        self.total = task.epochs * task.steps_per_epoch
        self.seconds = Seconds()
        self.earlier: dict[str, float] = {}  # seconds of this phase in earlier sessions
        self.begin = time.perf_counter()
        self.score: float | None = None
        self.pending: deque[tuple[int, Totals, Any]] = deque()
        self.agreed = np.zeros(2, np.int32)  # what all hosts agreed on: `_wishes`
        self.recent: deque[tuple[float, int]] = deque(maxlen=50)
        self.profiler = Profiler(session, task.phase, partial(self._settle, 0))

    def run(self, state):
        state = self._resume(state)
        step = int(state.step)
        if step == self.total or self._is_over():
            self.begin = time.perf_counter()  # nothing was done
            return state
        self.session.say(f"{self.task.name}: compiling ...")
        with self.seconds.of("compile"):
            self.task.compile(state)
        self.session.say(f"{self.task.name}: compiled in {self.seconds.spent['compile']:.0f} s")
        with (
            Progress(
                self.task.name, total=self.total, done=step, stream=self.session.screen
            ) as self.progress,
            self.session.saying(self.progress.say),
            closing(self.profiler),
        ):
            while step < self.total and not self._is_over():
                state, step = self._epoch(state, step)
        return state

    def _is_over(self) -> bool:
        """Whether the phase ends before its epochs do."""
        return self.task.finished or "stopped" in self.task.memory

    def _epoch(self, state, step: int):
        """Train to the end of the epoch that this step is in."""
        for batch in self._timed_batches(*divmod(step, self.task.steps_per_epoch)):
            with self.seconds.of("recovery"):
                state = self.task.before(state, step)
            if self.task.finished:
                self._save(state, step, wait=True)
                break
            self.profiler.before(step)
            with self.seconds.of("step"), self.profiler.mark(step):
                state, totals = self.task.step(state, *batch)
            self.pending.append((step, totals, self.session.devices.largest(self._wishes())))
            self._settle(AHEAD)
            step += 1
            self.profiler.after(step)
            if step % self.task.steps_per_epoch == 0:
                state = self._end_epoch(state, step)
            self._save_if_due(state, step)
        return state, step

    def _resume(self, state):
        log, replay = self.session.log, self.session.replay
        restored = self.checkpoints.restore(state)
        if restored is None:
            log.rewind(self.task.name, -1)
            replay.rewind(self.task.name, -1)
            return state
        self.task.notes = restored.about["notes"]
        self.task.memory = restored.about.get("memory", {})  # earlier versions had none
        self.task.finished = restored.about["finished"]
        log.rewind(self.task.name, restored.step)
        # What `before` did at this step will be done again, unless there is nothing left to do: all
        # nodes are frozen, or the phase has left its result.
        result = f"{self.task.name.replace(' ', '_')}.json"
        ended = self.session.workdir.read(result) is not None
        replay.rewind(self.task.name, restored.step - (not (self.task.finished or ended)))
        self.earlier = restored.about["seconds"]
        if restored.step < self.total and not self._is_over():
            self.session.say(
                f"{self.task.name}: continuing from step {restored.step} of {self.total}"
            )
        devices, before = len(self.session.devices), restored.about["devices"]
        if devices != before:
            self.session.say(
                f"{self.task.name}: on {devices} devices instead of {before}; results stay "
                "correct, but are no longer equal to the bit to those of an uninterrupted run"
            )
        return self.session.devices.replicate(restored.state)

    def _timed_batches(self, epoch: int, first: int):
        batches = self.task.batches(epoch, first)
        while True:
            with self.seconds.of("data"):
                batch = next(batches, None)
                if batch is None:
                    return
                batch = tuple(map(self.session.devices.split, batch))
            yield batch

    def _settle(self, ahead: int) -> None:
        """Wait until at most `ahead` steps are under way, and look at those that are done."""
        while len(self.pending) > ahead:
            step, totals, wishes = self.pending.popleft()
            with self.seconds.of("step"):
                totals, self.agreed = jax.device_get((totals, wishes))
            loss = float(totals.loss / totals.images)
            if not np.isfinite(loss):
                raise TrainingError(
                    f"{self.task.name}: the loss of step {step} is {loss}, at learning rate "
                    f"{self.task.learning_rate(step):.3g}; {self._last_good()}"
                )
            self.recent.append((time.perf_counter(), step))
            self.task.check(step)
            self._show(step + 1, loss, float(totals.correct / totals.images))

    def _last_good(self) -> str:
        step = self.checkpoints.latest_step()
        if step is None:
            return "there is no checkpoint from before it"
        return f"the last good checkpoint is {self.checkpoints.folder / str(step)}"

    def _rate(self) -> float:
        """The images per second over the last steps."""
        (begin, first), (end, last) = self.recent[0], self.recent[-1]
        return self.task.batch * (last - first) / (end - begin) if last > first else 0.0

    def _show(self, done: int, loss: float, accuracy: float) -> None:
        epoch = (done - 1) // self.task.steps_per_epoch + 1
        self.progress.update(
            done,
            f"epoch {epoch}/{self.task.epochs}  {self._rate():,.0f} images/s  loss {loss:.3f}  "
            f"accuracy {100 * accuracy:.1f} %{self.task.progress_note()}",
        )

    def _end_epoch(self, state, step: int):
        self._settle(0)
        with self.seconds.of("evaluation"):
            state, measured = self.task.end_epoch(state)
        self.score = measured.get("heldout_accuracy")
        row = {"phase": self.task.name, "step": step, "epoch": step // self.task.steps_per_epoch}
        row |= self.task.notes | measured
        row |= {
            "learning_rate": self.task.learning_rate(step - 1),
            "images_per_second": round(self._rate(), 1),
            "seconds": self.all_seconds(),
        }
        with self.seconds.of("log"):
            self.session.log.write(row)
        self.task.notes = {}
        return state

    def all_seconds(self) -> dict[str, float]:
        spent = self.seconds.spent | {"total": time.perf_counter() - self.begin}
        purposes = spent | self.earlier
        return {k: round(self.earlier.get(k, 0) + spent.get(k, 0), 3) for k in sorted(purposes)}

    def _wishes(self) -> Int[np.ndarray, " 2"]:
        """What this host wants: a checkpoint if its clock says so, a stop if it got a signal.

        All hosts must act alike, or they would wait for each other. So each acts on the largest
        wish of all hosts, which is known when the step that carried the wishes is done.
        """
        stop = self.session.stop.signal or 0
        return np.array([is_leader() and self.checkpoints.due_by_clock(), stop], np.int32)

    def _save_if_due(self, state, step: int) -> None:
        alone = self.session.devices.hosts == 1
        due, stop = map(int, self._wishes() if alone else self.agreed)
        ending = bool(stop) or step == self.total or self._is_over()
        if ending or due or self.checkpoints.due_by_steps(step):
            self._save(state, step, wait=ending)
        if stop and step < self.total and not self._is_over():
            name = signal.Signals(stop).name
            raise Interrupted(
                f"{name}: {self.task.name} saved at step {step} of {self.total}; "
                "the same command continues from there",
                stop,
            )

    def _save(self, state, step: int, *, wait: bool) -> None:
        self._settle(0)  # only what is known to be good is kept
        self.session.workdir.check_own()
        at_epoch = step % self.task.steps_per_epoch == 0
        with self.seconds.of("checkpoint"):
            self.checkpoints.save(
                step,
                state,
                about={
                    "phase": self.task.name,
                    **self.task.origin,
                    "epoch": step // self.task.steps_per_epoch,
                    "notes": self.task.notes,
                    "memory": self.task.memory,
                    "finished": self.task.finished,
                    "devices": len(self.session.devices),
                    "seconds": self.all_seconds(),
                },
                score=self.score if at_epoch else None,
                wait=wait,
            )
        self.agreed = np.zeros(2, np.int32)  # the wishes of before the save are fulfilled
