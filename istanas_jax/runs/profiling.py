"""Where the time of a phase goes: seconds by purpose, and a profile of some of its steps."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import jax
from ml_collections import ConfigDict

from istanas_jax.devices.parallel import is_leader
from istanas_jax.runs.folder import PROFILE
from istanas_jax.runs.phases import Phase
from istanas_jax.runs.session import Session


def profiled_steps(config: ConfigDict) -> tuple[int, int] | None:
    """The first step to record and the one to stop before, or None."""
    text = config.get("log", {}).get("profile", "")
    if not text:
        return None
    first, last = map(int, text.split(":"))
    return first, last


class Seconds:
    """Measures where the time goes, by name."""

    def __init__(self):
        self.spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.spent[name] += time.perf_counter() - begin


class Profiler:
    """Records the wanted steps of one phase with jax.profiler, on the first host.

    Args:
      settle: waits until the device has done the steps that it was given.
    """

    def __init__(self, session: Session, phase: Phase, settle: Callable[[], None]):
        self.steps = profiled_steps(session.config) if is_leader() else None
        self.folder = session.workdir / PROFILE / phase.folder
        self.session, self.phase, self.settle = session, phase, settle
        self._recording = False

    def before(self, step: int) -> None:
        """Begin if this step is the first to be recorded."""
        if self.steps and step == self.steps[0]:
            self.settle()
            jax.profiler.start_trace(str(self.folder))
            self._recording = True

    def mark(self, step: int) -> AbstractContextManager:
        """Put the number of the step into the profile."""
        if not self._recording:
            return nullcontext()
        return jax.profiler.StepTraceAnnotation(self.phase.title, step_num=step)

    def after(self, done: int) -> None:
        """End if so many steps are done."""
        if self._recording and done == self.steps[1]:
            self.settle()
            self.close()
            steps = f"steps {self.steps[0]} to {done}"
            self.session.say(f"{self.phase.title}: a profile of {steps} is in {self.folder}")

    def close(self) -> None:
        """Write what was recorded, also of a phase that ends early."""
        if self._recording:
            self._recording = False
            jax.profiler.stop_trace()
