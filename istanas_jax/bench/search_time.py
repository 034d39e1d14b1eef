"""How long an epoch of a search takes, from a few steps: to give methods the same minutes."""

import time
from functools import partial

import jax
import numpy as np
from ml_collections import ConfigDict

from istanas_jax.bench.methods import make_task, random_batch
from istanas_jax.data.splits import batch_shapes
from istanas_jax.devices import timing
from istanas_jax.devices.parallel import Devices


def run(config: ConfigDict, *, steps: int) -> dict:
    """Seconds of a search step and of an evaluation, after compiling, on random images.

    They are those of the fastest of so many: whatever else a machine does makes a step slower, and
    may last for all the steps of one method.
    """
    task, devices = make_task(config), Devices()
    state = task.start()
    # The last steps of a search: those at which every part of the architecture moves.
    last = max(0, task.epochs * task.steps_per_epoch - steps - 1)
    state = state.replace(weights=state.weights.replace(step=state.step + last))
    state = devices.replicate(state)
    begin = time.perf_counter()
    task.compile(state)
    compiled = time.perf_counter()
    shapes = batch_shapes(task.monitored, task.batch)
    batch = [devices.split(random_batch(shape)) for shape in shapes]

    def step() -> None:
        nonlocal state
        state, _ = jax.block_until_ready(task.step(state, *batch * task.batches_per_step))

    everyone = devices.split(np.ones(task.batch, np.float32))
    evaluate = task.evaluate.step
    measured = partial(timing.fastest, calls=steps, seconds=0.0)
    step_s = measured(step)
    evaluation_s = measured(lambda: evaluate(state, *batch, everyone))
    return {
        "step_s": round(step_s, 5),
        "steps_per_epoch": task.steps_per_epoch,
        "evaluation_s": round(evaluation_s * -(-len(task.monitored) // task.batch), 4),
        "evaluates_every_epoch": bool(task.heldout),
        "compile_s": round(compiled - begin, 2),
        "stages": task.method.stages,
    }
