"""What one two-stage search step costs: time, compilation, memory, and compilations after that.

The step is that of a run of ISTA-NAS, an update of b by Adam on one batch and one of W by SGD on
another, on random images. Both go through the active connections (dynamic, as a run does; static,
with the support known to the compiler) or through all candidates (dense, what DARTS pays).
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from istanas_jax.bench.methods import (
    compile_step,
    cost_lines,
    make_task,
    peak_rss_mb,
    random_batches,
    time_steps,
)
from istanas_jax.methods.ista import Ista
from istanas_jax.networks.counting import count_supernet
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.supernet.static import static_net
from istanas_jax.schedules.nets import super_net
from istanas_jax.schedules.search import TwoStageSearch
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.spaces import DARTS

MODES = ("dynamic", "static", "dense")
COMPILED = "/jax/core/compile/backend_compile_duration"


def run(
    config: ConfigDict,
    genotype: Genotype,
    *,
    mode: str = "dynamic",
    steps: int = 10,
    random_support: bool = False,
    regime: str = "search",
) -> dict:
    """Compile and time the search step of a run by this config.

    Args:
      genotype: its connections are the active ones.
      mode: how the super-net runs, one of MODES.
      steps: how many steps are timed.
      random_support: whether every step has another support, instead of the genotype's.
      regime: which batch norms the super-net has.
    """
    if random_support and mode == "static":
        raise ValueError("the static net has one support; --random-support needs another mode")
    task = mode_task(config, genotype, mode=mode, regime=regime)
    devices, rng = task.devices, np.random.default_rng(config.seed)
    state = devices.replicate(task.start())
    batches = random_batches(task)
    rss_before = peak_rss_mb()
    step, compiling = compile_step(task, state)

    compilations = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, fun_name="", **__: (
            compilations.append(fun_name) if event == COMPILED and "step" in fun_name else None
        )
    )

    def draw(state):
        support = devices.replicate(jnp.asarray(_random_support(rng)))
        return jax.block_until_ready(state.replace(arch=state.arch.replace(support=support)))

    before = {"before": draw} if random_support else {}
    times = time_steps(step, state, batches, steps, **before)
    net = super_net(config, task.dataset, Ista(config, 1), regime)
    size = task.dataset.image_size
    active = None if mode == "dense" else np.array(genotype.supports(), np.int32)
    work = count_supernet(net, active, image_size=size).multiply_adds
    # b needs a forward pass and the gradients of activations, W those of weights as well.
    per_step = 5 * task.batch * work
    return {
        "benchmark": "step",
        "mode": mode,
        "batch": task.batch,
        "channels": net.channels,
        "cells": net.cells,
        "dtype": net.dtype,
        "platform": jax.default_backend(),
        "step_s": round(min(times), 4),
        "step_s_median": round(float(np.median(times)), 4),
        **compiling,
        "peak_rss_mb": round(peak_rss_mb()),
        "step_rss_mb": round(peak_rss_mb() - rss_before),
        "multiply_adds": work,
        "multiply_adds_per_step": per_step,
        "fraction_of_matmul_rate": round(2 * per_step / min(times) / _matmul_rate(), 3),
        "recompilations": len(compilations),
    }


def mode_task(
    config: ConfigDict, genotype: Genotype, *, mode: str = "dynamic", regime: str = "search"
) -> TwoStageSearch:
    """The search of a run whose super-net has the genotype's connections and runs in this mode."""
    supports = genotype.supports()

    class Given(Ista):
        """ISTA-NAS with the connections of the genotype in place of those recovered first."""

        def first_variables(self, search, key: jax.Array):
            arch = super().first_variables(search, key)
            return arch.replace(support=jnp.array(supports, jnp.int32))

    class Dense(Given):
        def network_inputs(self, arch, weights=None):
            return super().network_inputs(arch, weights) | {"dense": True}

    class Static(Given):
        def adapt_net(self, net: SuperNet):
            return static_net(net, supports)

        def network_inputs(self, arch, weights=None):
            return {"coefficients": super().network_inputs(arch, weights)["coefficients"]}

        def keep_inactive_weights(self, net, arch, before, after):
            return after

    method = {"dynamic": Given, "dense": Dense, "static": Static}[mode]
    return make_task(config, method=method, regime=regime)


def _random_support(rng) -> np.ndarray:
    nodes = [rng.choice(DARTS.num_candidates(j % 4), 2, replace=False) for j in range(8)]
    return np.array(nodes, np.int32).reshape(2, 4, 2)


def _matmul_rate(size: int = 1024) -> float:
    """Floating-point operations per second of a large matrix product on this machine."""
    a = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        product(a, a).block_until_ready()
        times.append(time.perf_counter() - begin)
    return 2 * size**3 / min(times)


def table(results: dict) -> str:
    """Format the results as text for people."""
    lines = [
        *cost_lines(f"one search step, {results['mode']}", results),
        f"  multiply-adds     {results['multiply_adds'] / 1e6:.1f} M per image",
        f"  matmul rate       {100 * results['fraction_of_matmul_rate']:.0f} % of this machine's",
        f"  recompilations    {results['recompilations']}",
    ]
    return "\n".join(lines)
