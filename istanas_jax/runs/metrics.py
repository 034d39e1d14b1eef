"""What a run measures, as it goes: rows in files, and TensorBoard events if it is installed.

One row is one JSON object on a line of its own, with at least `phase` ("search 0") and `step`.
A row is stored when `write` returns, so whoever saves a checkpoint after it can resume: `rewind`
to the checkpoint's step, and the file is that of a run never stopped.
"""

from __future__ import annotations

import json
import math
import os
import struct
import time
from collections.abc import Mapping
from typing import Any

from etils import epath

from istanas_jax.runs.file_contents import row_faults
from istanas_jax.runs.folder import METRICS, TENSORBOARD
from istanas_jax.runs.writers import Writer
from istanas_jax.storage.files import GrowingFile, write_whole


class MetricsLog:
    """Appends rows to a file in WORKDIR; a last line that was only half written is dropped.

        with MetricsLog(workdir) as log:
            log.rewind("search 0", step)  # when resuming
            log.write({"phase": "search 0", "step": 100, "epoch": 1, "loss": loss})

    Beside metrics.jsonl, WORKDIR/tensorboard/<phase> gets the numbers of each row, if the package
    is there.

    Args:
      workdir: a folder, which is made, or a gs:// address, where a row costs a file of all rows.
      name: name of the file.
      writes: False for all but one process of a run: their rows go nowhere.
    """

    def __init__(self, workdir: str | os.PathLike, name: str = METRICS, *, writes: bool = True):
        self.path = epath.Path(workdir) / name
        self.writes = writes
        self._tensorboard = epath.Path(workdir) / TENSORBOARD
        self._protobufs = _tensorboard_protobufs() if writes and name == METRICS else None
        self.writer: Writer | None = None  # of a service that gets the rows too
        self._events: dict[str, _EventFile] = {}
        if not writes:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = self.path.read_bytes() if self.path.exists() else b""
        whole = b"".join(line for line, _ in _lines(content, self.path))
        if whole != content or not content:
            write_whole(self.path, whole)
        self._file = GrowingFile(self.path)

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row. NaN and infinities become strings: JSON has no numbers for them."""
        if not self.writes:
            return
        plain = _plain(row)
        self._file.add(json.dumps(plain, allow_nan=False).encode() + b"\n")
        if self._protobufs:
            self._event_file(plain["phase"]).scalars(plain["step"], _scalars(plain))
        if self.writer:
            self.writer.write(plain["phase"], plain["step"], _scalars(plain))

    def rewind(self, phase: str, step: int) -> None:
        """Forget the rows of this phase after `step`; those of other phases stay."""
        if not self.writes:
            return
        rows = list(_lines(self.path.read_bytes(), self.path))
        kept = [line for line, row in rows if row["phase"] != phase or row["step"] <= step]
        if len(kept) < len(rows):
            self._file.close()
            write_whole(self.path, b"".join(kept))
            self._file = GrowingFile(self.path)
        if self._protobufs and (self._tensorboard / phase).is_dir():
            self._event_file(phase).purge(step + 1)

    def close(self) -> None:
        if self.writes:
            self._file.close()
        for events in self._events.values():
            events.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _event_file(self, phase: str) -> _EventFile:
        if phase not in self._events:
            self._events[phase] = _EventFile(self._tensorboard / phase, *self._protobufs)
        return self._events[phase]


def read(path: str | os.PathLike) -> list[dict]:
    """The rows of such a file, without a last line that was only half written."""
    return [row for _, row in _lines(epath.Path(path).read_bytes(), path)]


def _lines(content: bytes, path):
    """Yield each whole line and its row. A bad line is forgiven in last place only."""
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not line.endswith(b"\n"):
                return
        except (ValueError, RecursionError):
            if number == len(lines):
                return
            raise ValueError(f"{path}, line {number}: not JSON") from None
        if fault := next(row_faults(row), None):
            raise ValueError(f"{path}, line {number} is damaged, {fault}: remove the line")
        yield line, row


def _plain(value: Any) -> Any:
    """Convert a value to JSON's types; arrays and their scalars by tolist."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # float() reads it back
    return value


def _scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row by tag; those of a list as name/0, name/1, ..."""
    scalars = {}
    for key, value in row.items():
        if isinstance(value, list):
            scalars |= _scalars({f"{key}/{i}": item for i, item in enumerate(value)})
        elif key not in ("phase", "step"):
            try:
                scalars[key] = float(value)
            except (TypeError, ValueError):  # text, or null
                continue
    return scalars


class _EventFile:
    """An event file, written as it comes: TensorBoard's own writer has a thread and wants TF."""

    def __init__(self, folder: epath.Path, event_pb2, masked_crc32c):
        folder.mkdir(parents=True, exist_ok=True)
        self._pb = event_pb2
        self._crc = masked_crc32c
        # TensorBoard reads the files of a folder by name: the later one must come later.
        name = f"events.out.tfevents.{time.time():017.6f}.{os.getpid()}"
        self._file = GrowingFile(folder / name)
        self._write(file_version="brain.Event:2")

    def scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        values = [{"tag": tag, "simple_value": value} for tag, value in scalars.items()]
        self._write(step=step, summary={"value": values})

    def purge(self, step: int) -> None:
        """Make TensorBoard forget what this folder says of `step` and later."""
        self._write(step=step, session_log={"status": self._pb.SessionLog.START})

    def close(self) -> None:
        self._file.close()

    def _write(self, **fields) -> None:
        data = self._pb.Event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(data))
        crcs = (struct.pack("<I", self._crc(part)) for part in (length, data))
        self._file.add(length + next(crcs) + data + next(crcs))


def _tensorboard_protobufs():
    """TensorBoard's events and their checksum, or None; `tensorboard.summary` might load TF."""
    try:
        from tensorboard.compat.proto import event_pb2
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
    except Exception:  # absent, or at odds with the installed protobuf: do without
        return None
    return event_pb2, masked_crc32c
