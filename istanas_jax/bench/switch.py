"""What a one-stage run gains when its architecture is fixed and the static net takes over.

The two steps that a run by this config would use, on the same architecture, take turns on random
images, since the machine's speed may change.
"""

import statistics
import time

import jax
import numpy as np
from ml_collections import ConfigDict

from istanas_jax.data.splits import batch_shapes
from istanas_jax.devices.parallel import Devices
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.outline import outline
from istanas_jax.schedules.search import OneStageSearch
from istanas_jax.schedules.training import TrainTask
from istanas_jax.space.genotype import Genotype
from istanas_jax.sparse_coding.architecture import coefficients, supports_of


def run(config: ConfigDict, *, steps: int = 5, rounds: int = 5) -> dict:
    """Measure the seconds per step before and after the switch."""
    devices = Devices()
    dataset = outline(config.data)
    search = OneStageSearch(config, dataset, devices)
    search.begin(0)
    start = search.start()
    space = search.net.space
    genotype = Genotype.from_supports(*supports_of(jax.device_get(start.arch)), space)
    net = target_net(config, config.train, dataset, genotype)
    found = coefficients(start.arch, space=space)
    train = TrainTask(config, dataset, devices, net, name="train", coefficients=found)
    train.begin(0)
    timed = {}
    for name, task, state in (("before", search, start), ("after", train, train.start())):
        state = devices.replicate(state)
        step = devices.compile(task.lower(state))
        batch = [devices.split(_random(x)) for x in batch_shapes(search.images, task.batch)]
        timed[name] = _Timed(step, step(state, *batch)[0], batch)
    seconds = {name: [] for name in timed}
    for _ in range(rounds):
        for name, one in timed.items():
            seconds[name].append(one.time(steps))
    before, after = (statistics.median(seconds[name]) for name in ("before", "after"))
    return {
        "before": before,
        "after": after,
        "ratio": statistics.median(
            b / a for b, a in zip(seconds["before"], seconds["after"], strict=True)
        ),
        "batch": search.batch,
    }


class _Timed:
    def __init__(self, step, state, batch):
        self.step, self.state, self.batch = step, state, batch

    def time(self, steps: int) -> float:
        """Seconds per step."""
        jax.block_until_ready(self.state)
        begin = time.perf_counter()
        for _ in range(steps):
            self.state, _ = self.step(self.state, *self.batch)
        jax.block_until_ready(self.state)
        return (time.perf_counter() - begin) / steps


def _random(shape: jax.ShapeDtypeStruct) -> np.ndarray:
    high = 256 if shape.dtype == np.uint8 else 2
    return np.random.default_rng(0).integers(0, high, shape.shape, shape.dtype)


def table(results: dict) -> str:
    """Format the results as text for people."""
    return (
        f"{results['batch']} images take {1000 * results['before']:.0f} ms in search and "
        f"{1000 * results['after']:.0f} ms after the switch: {results['ratio']:.2f} times as fast"
    )
