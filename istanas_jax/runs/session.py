"""An open run: its folder, images, devices and logs, which its phases share."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TextIO

import jax
from ml_collections import ConfigDict

from istanas_jax.config.checks import check_config
from istanas_jax.data.dataset import Dataset, load_dataset
from istanas_jax.data.splits import check_batches
from istanas_jax.devices.parallel import Devices, from_leader, is_leader, on_all_hosts
from istanas_jax.runs.folder import DATA, REPLAY, STARTED, Workdir
from istanas_jax.runs.interrupts import Stop
from istanas_jax.runs.metrics import MetricsLog
from istanas_jax.runs.provenance import provenance
from istanas_jax.runs.writers import check_writer, open_writer
from istanas_jax.storage.files import in_bucket


@dataclass
class Session:
    """An open run."""

    workdir: Workdir
    dataset: Dataset
    config: ConfigDict
    log: MetricsLog
    replay: MetricsLog
    devices: Devices
    stop: Stop
    screen: TextIO  # where progress is shown: nowhere on other hosts than the first
    print_line: Callable[[str], None]

    def say(self, line: str) -> None:
        """Print a line, above the progress bar if there is one."""
        self.print_line(line)

    @contextmanager
    def saying(self, print_line: Callable[[str], None]) -> Iterator[None]:
        """Print lines through this progress bar while it is on the screen."""
        before, self.print_line = self.print_line, print_line
        try:
            yield
        finally:
            self.print_line = before


def prepare(config: ConfigDict, path: str | os.PathLike) -> tuple[Devices, Workdir, Dataset]:
    """Check and gather everything that a run needs; writes nothing."""
    devices = Devices()
    check_config(config, len(devices))
    workdir = Workdir.open(path, config, writes=is_leader())
    dataset = load_dataset(config.data)
    check_batches(config, dataset)
    check_writer(config)
    if config.get("log", {}).get("profile") and in_bucket(workdir.path):
        raise ValueError(f"a profile is written to a disk, and {path} is in a bucket")
    workdir.check_data(dataset.marks, config.data.name)
    return devices, workdir, dataset


@contextmanager
def open_session(config: ConfigDict, path: str | os.PathLike) -> Iterator[Session]:
    """Open the run in the folder `path`, new or to be continued."""
    devices, workdir, dataset = prepare(config, path)
    marks = dataset.marks
    if not on_all_hosts(marks == from_leader(marks)):  # and all have seen the folder as it was
        raise ValueError(f"the hosts have different images of {config.data.name}: make them equal")
    with (
        _programs(),
        workdir.work(config),
        MetricsLog(workdir.path, writes=is_leader()) as log,
        open_writer(config if is_leader() else {}, workdir, _warn) as log.writer,
        MetricsLog(workdir.path, REPLAY, writes=is_leader()) as replay,
        Stop() as stop,
        open(os.devnull, "w") as nowhere,
    ):
        screen, lines = (sys.stderr, sys.stdout) if is_leader() else (nowhere, nowhere)
        print_line = partial(print, file=lines, flush=True)  # also when it is a file
        workdir.write(STARTED, provenance(devices))
        workdir.write(DATA, marks)
        yield Session(workdir, dataset, config, log, replay, devices, stop, screen, print_line)


def _warn(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _programs() -> Iterator[None]:
    """Release compiled programs at the end.

    The programs of a run take thousands of memory maps, of which Linux allows a process 65,530:
    after some thirty runs a process could not compile another. jax keeps programs in case their
    functions are called again, which those of a finished run are not. What the caller has compiled
    with `jax.jit` is compiled again when it is called.
    """
    try:
        yield
    finally:
        jax.clear_caches()
        gc.collect()
