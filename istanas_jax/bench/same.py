"""Whether two runs ended with the same results, bit for bit."""

import json
from pathlib import Path
from typing import Any

from etils import epath

from istanas_jax.runs import metrics
from istanas_jax.runs.folder import CHECKPOINTS, CONFIG, METRICS, REPLAY, STARTED, TRAINED
from istanas_jax.storage.checkpoint_files import read_about, read_arrays, steps_in

# Keys whose values depend on the clock or the machine.
TIMES = {"seconds", "images_per_second"}
ROWS = (METRICS, REPLAY)
PAGES = {STARTED, CONFIG}  # say how the run was started


def differences(one: Path, other: Path) -> list[str]:
    """Say what differs between the folders `one` and `other`."""
    found = []
    for name in ROWS:
        if _rows(one / name) != _rows(other / name):
            found.append(f"{other / name} has other rows than {one / name}")
    files = {path.name for folder in (one, other) for path in folder.glob("*.json")} - PAGES
    for name in sorted(files):
        if _json(one / name) != _json(other / name):
            found.append(f"{other / name} differs from {one / name}")
    folders = {p.relative_to(one) for p in (*one.glob(f"{CHECKPOINTS}/*"), one / TRAINED)}
    for folder in sorted(folders):
        if _arrays(one / folder) != _arrays(other / folder):
            found.append(f"{other / folder} differs from {one / folder}")
    return found


def _rows(path: Path) -> list[dict] | None:
    return [_without_times(row) for row in metrics.read(path)] if path.exists() else None


def _json(path: Path) -> Any:
    return _without_times(json.loads(path.read_text())) if path.exists() else None


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in TIMES}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def _arrays(folder: Path) -> tuple[int, dict] | str:
    """The last step, and type, shape and checksum of its arrays, all read and checked."""
    path = epath.Path(folder)
    try:
        last = steps_in(path)[-1]
        leaves = read_about(path, last)["leaves"]
        read_arrays(path / str(last), leaves)  # checks them
    except Exception as error:  # a damaged file surfaces as almost any of them
        return f"{folder} cannot be read: {error}"
    return last, leaves
