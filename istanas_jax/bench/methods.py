"""What one search step of a method costs: the very step of a run by this config, on random images.

`search.method` decides what a step is: for most methods an update of the architecture on one batch
and of W on another.
"""

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil
from ml_collections import ConfigDict

from istanas_jax.data.splits import batch_shapes
from istanas_jax.devices.parallel import Devices
from istanas_jax.methods.contract import Method
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.outline import outline
from istanas_jax.schedules.search import TwoStageSearch
from istanas_jax.training.states import SearchState


class OutOfMemory(ValueError):
    """A step that was compiled and cannot run here; `results` are those of its compilation."""

    def __init__(self, message: str, results: dict):
        super().__init__(message)
        self.results = results


def run(config: ConfigDict, *, steps: int = 10) -> dict:
    """Compile and time a search step; OutOfMemory if the compiler says that it cannot run."""
    task = make_task(config)
    devices, state = task.devices, task.start()
    # The last steps of a search: those at which every part of the architecture moves.
    last = task.epochs * task.steps_per_epoch - steps - 1
    state = state.replace(weights=state.weights.replace(step=state.step + last))
    state = devices.replicate(state)
    batch = random_batches(task)
    rss_before = peak_rss_mb()
    step, compiling = compile_step(task, state)
    results = {
        "benchmark": "step",
        "method": config.search.method,
        "batch": task.batch,
        "channels": task.net.channels,
        "cells": task.net.cells,
        "dtype": task.net.dtype,
        "platform": jax.default_backend(),
        "steps_per_epoch": task.steps_per_epoch,
        "epochs": task.epochs,
        "stages": task.method.stages,
        **compiling,
        **_memory(step),
    }
    if results["needed_mb"] > results["free_mb"]:
        needed, free = (results[key] / 1024 for key in ("needed_mb", "free_mb"))
        raise OutOfMemory(f"the step needs {needed:.1f} GiB, {free:.1f} are free", results)
    peak = _Peak()
    times = time_steps(step, state, batch, steps)
    return results | {
        "step_s": round(min(times), 4),
        "step_s_median": round(float(np.median(times)), 4),
        "measured_mb": round(peak.grown_mb()),
        "peak_rss_mb": round(peak_rss_mb()),
        "step_rss_mb": round(peak_rss_mb() - rss_before),
    }


def compile_step(task: TwoStageSearch, state: SearchState) -> tuple[Any, dict]:
    """Compile the step for a state of these shapes; return it and what that took."""
    begin = time.perf_counter()
    lowered = task.lower(state)
    traced = time.perf_counter()
    step = task.devices.compile(lowered)
    return step, {
        "trace_s": round(traced - begin, 2),
        "compile_s": round(time.perf_counter() - traced, 2),
        "temp_mb": round(step.memory_analysis().temp_size_in_bytes / 2**20),
    }


def time_steps(
    step: Callable,
    state: SearchState,
    batch: list,
    steps: int,
    before: Callable[[SearchState], SearchState] = lambda state: state,
) -> list[float]:
    """Seconds of each step, after one that warms up caches and is not counted.

    before: what happens to the state ahead of each step, outside the measured time.
    """
    times = []
    for _ in range(steps + 1):
        state = before(state)
        begin = time.perf_counter()
        state, totals = jax.block_until_ready(step(state, *batch))
        times.append(time.perf_counter() - begin)
    loss = float(totals.loss / totals.images)
    if not np.isfinite(loss):
        raise ValueError(f"the loss is {loss} after {steps + 1} steps")
    return times[1:]


def make_task(
    config: ConfigDict, *, method: type[Method] | None = None, regime: str = "search"
) -> TwoStageSearch:
    """The search of a run by this config, ready to start, without reading its images.

    Args:
      method: replaces the one that the config names.
      regime: which batch norms the super-net has.
    """
    dataset = outline(config.data)
    target = target_net(config, config.train, dataset)
    task = TwoStageSearch(config, dataset, Devices(), target, method=method, regime=regime)
    task.begin(0)
    return task


def _memory(step) -> dict[str, int]:
    """Memory that the compiled step needs beside its state and batch, and what is free."""
    plan = step.memory_analysis()
    needed = plan.temp_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
    device = jax.local_devices()[0].memory_stats() or {}
    free = psutil.virtual_memory().available
    if "bytes_limit" in device:
        free = device["bytes_limit"] - device["bytes_in_use"]
    return {"needed_mb": round(needed / 2**20), "free_mb": round(free / 2**20)}


class _Peak:
    """Measures how far the memory in use has grown, on the device or else in this process."""

    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")

    def __init__(self):
        # Compiling needs memory too, which is not the step's: on Linux the peak can be forgotten.
        if self.clear.exists():
            self.clear.write_text("5")
        self.before = self._device("bytes_in_use") or psutil.Process().memory_info().rss

    def grown_mb(self) -> float:
        peak = self._device("peak_bytes_in_use") or self._process()
        return max(peak - self.before, 0) / 2**20

    def _device(self, key: str) -> int | None:
        return (jax.local_devices()[0].memory_stats() or {}).get(key)

    def _process(self) -> float:
        if self.status.exists():
            for line in self.status.read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 2**10
        return peak_rss_mb() * 2**20


def random_batches(task: TwoStageSearch) -> list:
    """Random images and labels for one step of a search, on its devices."""
    shapes = batch_shapes(task.monitored, task.batch) * task.batches_per_step
    return [task.devices.split(random_batch(shape)) for shape in shapes]


def random_batch(shape: jax.ShapeDtypeStruct) -> np.ndarray:
    """Random images or labels."""
    high = 256 if shape.dtype == np.uint8 else 2
    return np.random.default_rng(0).integers(0, high, shape.shape, shape.dtype)


def table(results: dict) -> str:
    """Format the results as text for people."""
    return "\n".join(cost_lines(f"one search step by {results['method']}", results))


def cost_lines(title: str, results: dict) -> list[str]:
    """The lines that the tables of all steps share."""
    return [
        f"{title}: batch {results['batch']}, {results['channels']} channels, {results['cells']} "
        f"cells, {results['dtype']} on {results['platform']}",
        f"  step              {results['step_s']:.3f} s (median {results['step_s_median']:.3f})",
        f"  trace, compile    {results['trace_s']:.1f} s, {results['compile_s']:.1f} s",
        f"  temporary memory  {results['temp_mb']} MB",
        f"  peak memory       {results['peak_rss_mb']} MB, {results['step_rss_mb']} MB of it since "
        "before compiling",
    ]


def peak_rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
