"""What one search step of a method costs: the very step of a run by this config, on random images.

A step is what `search.method` makes of it: for most an update of the architecture on one batch and
of W on another.
"""

import time

import jax
import numpy as np
from ml_collections import ConfigDict

from istanas_jax.bench.step import peak_rss_mb
from istanas_jax.genotype import random_genotype
from istanas_jax.outline import make_session, outline
from istanas_jax.parallel import Devices
from istanas_jax.recipes import batch_shapes
from istanas_jax.search import TwoStageSearch
from istanas_jax.training import retrain_net


def run(config: ConfigDict, *, steps: int = 10) -> dict:
    """Compile and time a search step."""
    devices, a = Devices(), config.architecture
    session = make_session(config, outline(config.data), devices, print)
    target = retrain_net(session, random_genotype(0, num_nodes=a.nodes, s=a.s))
    task = TwoStageSearch(session, target)
    task.begin(0)
    state = task.start()
    # The last steps of a search: those at which every part of the architecture moves.
    last = task.epochs * task.steps_per_epoch - steps - 1
    state = state.replace(weights=state.weights.replace(step=state.step + last))
    state = devices.replicate(state)
    shapes = batch_shapes(task.monitored, task.batch) * task.batches_per_step
    batch = [devices.split(_random(shape)) for shape in shapes]
    rss_before = peak_rss_mb()
    begin = time.perf_counter()
    lowered = task.lower(state)
    traced = time.perf_counter()
    step = devices.compile(lowered)
    compiled = time.perf_counter()
    times = []
    for _ in range(steps + 1):  # the first warms up and is not counted
        start = time.perf_counter()
        state, totals = jax.block_until_ready(step(state, *batch))
        times.append(time.perf_counter() - start)
    loss = float(totals.loss / totals.images)
    if not np.isfinite(loss):
        raise ValueError(f"the loss is {loss} after {steps + 1} steps")
    return {
        "benchmark": "step",
        "method": config.search.method,
        "batch": task.batch,
        "channels": task.net.channels,
        "cells": task.net.cells,
        "dtype": task.net.dtype,
        "platform": jax.default_backend(),
        "step_s": round(min(times[1:]), 4),
        "step_s_median": round(float(np.median(times[1:])), 4),
        "trace_s": round(traced - begin, 2),
        "compile_s": round(compiled - traced, 2),
        "temp_mb": round(step.memory_analysis().temp_size_in_bytes / 2**20),
        "peak_rss_mb": round(peak_rss_mb()),
        "step_rss_mb": round(peak_rss_mb() - rss_before),
    }


def _random(shape: jax.ShapeDtypeStruct) -> np.ndarray:
    high = 256 if shape.dtype == np.uint8 else 2
    return np.random.default_rng(0).integers(0, high, shape.shape, shape.dtype)


def table(figures: dict) -> str:
    """The figures for people."""
    lines = [
        f"one search step by {figures['method']}: batch {figures['batch']}, {figures['channels']} "
        f"channels, {figures['cells']} cells, {figures['dtype']} on {figures['platform']}",
        f"  step              {figures['step_s']:.3f} s (median {figures['step_s_median']:.3f})",
        f"  trace, compile    {figures['trace_s']:.1f} s, {figures['compile_s']:.1f} s",
        f"  temporary memory  {figures['temp_mb']} MB",
        f"  peak memory       {figures['peak_rss_mb']} MB, {figures['step_rss_mb']} MB of it since "
        "before compiling",
    ]
    return "\n".join(lines)
