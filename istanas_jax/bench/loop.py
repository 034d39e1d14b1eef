"""What a search costs besides its steps: data, logging, recovery, checkpoints.

The same compiled step runs by itself on one batch, and in the real loop: images by index, epochs,
recoveries, a checkpoint. The parts take turns, since the machine's speed may change.
"""

import tempfile
import time

import jax
import numpy as np
from ml_collections import ConfigDict

from istanas_jax.runs.loop import Fitted, fit
from istanas_jax.runs.session import open_session
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.search import TwoStageSearch

OUTSIDE = ("checkpoint", "data", "evaluation", "log", "recovery")


def run(config: ConfigDict, *, steps: int = 20) -> dict:
    """Time `steps` steps alone and as an epoch of a search by this config."""
    with config.unlocked():
        kept = 1 - config.data.holdout_fraction
        config.data.max_images = round(steps * config.search.batch / kept * 2)
        sizes = config.search if "epochs" in config.search else config.search[config.search.method]
        sizes.epochs = 2
        config.checkpoint.every_steps = steps
        config.schedule = "two_stage"
    with tempfile.TemporaryDirectory() as folder, open_session(config, folder + "/run") as session:
        target = target_net(config, config.train, session.dataset)
        task = TwoStageSearch(config, session.dataset, session.devices, target)
        task.begin(0)
        state = session.devices.replicate(task.start())
        task.compile(state)
        batch = tuple(map(session.devices.split, next(task.batches(0, 0))))
        before = _alone(task, task.start(), batch, steps)
        fitted: Fitted = fit(task, task.start(), session)
        after = _alone(task, task.start(), batch, steps)
        begin = time.perf_counter()
        for _ in range(5):
            for _ in task.batches(0, 0):
                pass
        fetch = (time.perf_counter() - begin) / (5 * task.steps_per_epoch)
    seconds = fitted.seconds
    done = 2 * task.steps_per_epoch
    outside = sum(seconds.get(purpose, 0.0) for purpose in OUTSIDE)
    in_loop = (seconds["total"] - seconds.get("compile", 0.0)) / done
    alone = min(before, after)
    return {
        "benchmark": "loop",
        "batch": config.search.batch,
        "cells": task.net.cells,
        "channels": config.search.channels,
        "platform": jax.default_backend(),
        "steps": done,
        "step_alone_s": round(alone, 4),
        "step_alone_s_before_and_after": [round(before, 4), round(after, 4)],
        "step_in_loop_s": round(in_loop, 4),
        "batch_ready_s": round(fetch, 6),
        "outside_fraction": round(outside / (in_loop * done), 4),
        "seconds": {k: seconds.get(k, 0.0) for k in (*OUTSIDE, "step")},
    }


def _alone(task: TwoStageSearch, state, batch, steps: int) -> float:
    """Median seconds of the compiled step on one batch that is already on the device."""
    state = task.devices.replicate(state)
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        state, _ = jax.block_until_ready(task.step(state, *batch))
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def table(results: dict) -> str:
    """Format the results as text for people."""
    seconds = results["seconds"]
    lines = [
        f"{results['steps']} search steps of batch {results['batch']}, {results['channels']} "
        f"channels, {results['cells']} cells on {results['platform']}",
        f"  a step alone         {results['step_alone_s']:.3f} s",
        f"  a step in the loop   {results['step_in_loop_s']:.3f} s",
        f"  a batch ready after  {1000 * results['batch_ready_s']:.2f} ms",
        f"  outside the step     {100 * results['outside_fraction']:.2f} % of the time: "
        + ", ".join(f"{purpose} {seconds[purpose]:.2f} s" for purpose in OUTSIDE),
    ]
    return "\n".join(lines)
