"""The time of each operation of the search space, at each shape of a config's search network.

An operation is a program of its own here, in training: its batch norms use the batch. Times are
those of the fastest call. `share` is the share of the memory's bandwidth that an operation would
need if it read its input, its weights and, backward, the gradient of its output once, and wrote
what it makes once. The bandwidth is that of a copy, measured in the same run; what stays in the
processor's caches can be faster.
"""

import os
from collections.abc import Callable, Sequence

import jax
from ml_collections import ConfigDict

from istanas_jax.bench.costs import torch_operations
from istanas_jax.devices import timing
from istanas_jax.methods import find_method
from istanas_jax.networks.operation_times import alone, check_names, does_nothing, edge_shapes
from istanas_jax.networks.operations import REGIMES
from istanas_jax.runs.folder import CONFIG, OPERATION_TIMES, Workdir
from istanas_jax.schedules.nets import super_net
from istanas_jax.schedules.outline import outline

WAYS = ("forward", "both")


def run(
    config: ConfigDict,
    *,
    batch: int | None = None,
    only: Sequence[str] = (),
    seconds: float | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict:
    """Time the operations.

    Args:
      batch: that of the config's search if None.
      only: the names of the operations to time; all candidates if empty.
      seconds: how long each is timed, see `timing.fastest`.
    """
    if "search" not in config:
        raise ValueError("this config has no search, so it has no candidates to measure")
    batch = batch or config.search.batch
    dataset = outline(config.data)
    regime = "one_stage" if config.schedule == "one_stage" else "search"
    net = super_net(config, dataset, find_method(config.search.method)(config, 1), regime)
    known = net.space.operations
    check_names(only, known)
    shapes = edge_shapes(net, dataset.image_size, net.space.nodes)
    rate = timing.copy_rate()
    rows, why_not = [], torch_operations.why_not()
    for shape, edges in sorted(shapes.items()):
        say(f"{shape.channels} channels, {shape.size} pixels, stride {shape.stride}")
        for op in only or known:
            given = {"regime": REGIMES[regime], "batch": batch, "dtype": net.dtype}
            row = {"operation": op, **shape._asdict(), "edges": edges}
            row |= _measured(op, shape, given, rate, seconds)
            if not why_not and torch_operations.has(op, shape.stride):
                row |= torch_operations.measure(op, shape, **given, seconds=seconds)
                row |= {f"{way}_ratio": _ratio(row, way) for way in WAYS}
            rows.append(row)
    return {
        "benchmark": "ops",
        "platform": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "cores": os.cpu_count(),
        "batch": batch,
        "dtype": net.dtype,
        "copy_gb_s": round(rate / 1e9, 2),
        "call_ms": round(1000 * timing.call_seconds(), 4),
        "torch": why_not or torch_operations.version(),
        "rows": rows,
    }


def _measured(op: str, shape, given: dict, rate: float, seconds: float | None) -> dict:
    one = alone(op, shape, **given, train=True)
    nothing = does_nothing(op, shape, given["regime"])
    row = {}
    times = one.time_forward(seconds=seconds), one.time_both(seconds=seconds)
    moved = one.bytes_forward(), one.bytes_both()
    for way, time, size in zip(WAYS, times, moved, strict=True):
        row[f"{way}_ms"] = round(1000 * time, 4)
        row[f"{way}_gb_s"] = None if nothing else round(size / time / 1e9, 3)
        row[f"{way}_share"] = None if nothing else round(size / time / rate, 4)
    return row


def _ratio(row: dict, way: str) -> float:
    return round(row[f"{way}_ms"] / row[f"torch_{way}_ms"], 3)


def config_of_run(folder: str | os.PathLike) -> tuple[ConfigDict, Workdir]:
    """The config of the run in a folder, and the folder, to write to."""
    workdir = Workdir(folder)
    config = workdir.read(CONFIG)
    if config is None:
        raise ValueError(f"{folder} holds no run: there is no {CONFIG} in it")
    return ConfigDict(config), workdir


def write(workdir: Workdir, results: dict) -> None:
    """Leave the results in a run's folder, for its report."""
    workdir.write(OPERATION_TIMES, results)


def table(results: dict) -> str:
    """Format the results as text for people."""
    lines = [
        f"operations alone in training, batch {results['batch']}, {results['dtype']} on "
        f"{results['device']} ({results['platform']}, {results['cores']} cores)",
        f"a copy moves {results['copy_gb_s']:.1f} GB/s; a call that does nothing takes "
        f"{results['call_ms']:.3f} ms",
        _about_torch(results["torch"]),
        "",
        f"{'operation':<14}{'channels':>8}{'pixels':>7}{'stride':>7}{'edges':>6}"
        + "".join(f"{way:>13}{'of copy':>8}{'/ torch':>8}" for way in ("forward", "+ backward")),
    ]
    for row in results["rows"]:
        line = (
            f"{row['operation']:<14}{row['channels']:>8}{row['size']:>7}{row['stride']:>7}"
            f"{row['edges']:>6}"
        )
        for way in WAYS:
            line += f"{row[f'{way}_ms']:>10.3f} ms{shown(row[f'{way}_share'], '{:.0%}'):>8}"
            line += f"{shown(row.get(f'{way}_ratio'), '{:.2f}'):>8}"
        lines.append(line)
    return "\n".join(lines)


def _about_torch(torch: str) -> str:
    if torch.startswith("torch "):
        return f"/ torch: our time divided by that of {torch}, eager, channels_last"
    return torch


def shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
