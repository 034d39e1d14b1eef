"""Where else the rows of metrics.jsonl go: one file for each service, chosen by `log.writer`.

A service's library is imported only if its writer is chosen. Each file has a class `Writer`, whose
`write` gets the numbers of a row.
"""

from collections.abc import Callable
from contextlib import contextmanager
from importlib import import_module, util
from typing import Any, Protocol

from ml_collections import ConfigDict

from istanas_jax.runs.folder import Workdir


class Writer(Protocol):
    """What a service must do."""

    def __init__(self, workdir: Workdir, config: dict[str, Any]): ...

    def write(self, phase: str, step: int, numbers: dict[str, float]) -> None: ...

    def close(self) -> None: ...


def chosen(config: ConfigDict) -> str:
    return config.get("log", {}).get("writer", "")


def check_writer(config: ConfigDict) -> None:
    """Raise a ValueError if the chosen service has no library here."""
    name = chosen(config)
    if name and util.find_spec(name) is None:
        raise ValueError(
            f"log.writer is {name}, which is not installed: pip install 'istanas-jax[{name}]'"
        )


@contextmanager
def open_writer(config: ConfigDict, workdir: Workdir, say: Callable[[str], None]):
    """The writer that the config chooses, or None; a service that fails later stops no run."""
    name = chosen(config)
    if not name:
        yield None
        return
    module = import_module(f"istanas_jax.runs.writers.{name}")
    try:
        writer = _Forgiving(module.Writer(workdir, config.to_dict()), name, say)
    except Exception as error:  # of any type: no account, no server, ...
        raise ValueError(f"log.writer {name} cannot begin: {error}") from error
    try:
        yield writer
    finally:
        writer.close()


class _Forgiving:
    """A writer that is given up, with a word, when its service fails."""

    def __init__(self, writer: Writer, name: str, say: Callable[[str], None]):
        self.writer: Writer | None = writer
        self.name, self.say = name, say

    def write(self, phase: str, step: int, numbers: dict[str, float]) -> None:
        self._try(lambda writer: writer.write(phase, step, numbers))

    def close(self) -> None:
        self._try(lambda writer: writer.close())

    def _try(self, act: Callable[[Writer], None]) -> None:
        try:
            if self.writer is not None:
                act(self.writer)
        except Exception as error:  # of any type, as above
            self.writer = None
            words = " ".join(str(error).split())[:200] or type(error).__name__
            self.say(f"log.writer {self.name} gets no more rows ({words}); metrics.jsonl has all")
