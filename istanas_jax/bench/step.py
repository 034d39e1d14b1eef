"""What one two-stage search step costs: time, compilation, memory, and compilations after that.

A step is an update of b by Adam on one batch, then one of W by SGD on another, both through the
active connections (dynamic, static) or through all candidates (dense, what DARTS pays).
"""

import functools
import resource
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from istanas_jax.networks.counting import count_supernet
from istanas_jax.networks.static import select_variables, static_net
from istanas_jax.networks.supernet import SuperNet, keep_inactive
from istanas_jax.networks.variables import init_variables
from istanas_jax.space.connections import num_candidates
from istanas_jax.space.genotype import Genotype
from istanas_jax.sparse_coding.architecture import (
    ArchState,
    Coding,
    coefficients,
    init_architecture,
)

MODES = ("dynamic", "static", "dense")
COMPILED = "/jax/core/compile/backend_compile_duration"
IMAGE_SIZE = 32


def run(
    genotype: Genotype,
    *,
    mode: str = "dynamic",
    batch: int = 64,
    channels: int = 16,
    cells: int = 8,
    steps: int = 10,
    random_support: bool = False,
    regime: str = "search",
    dtype: str = "float32",
    seed: int = 0,
) -> dict:
    """Compile and time one search step.

    Args:
      genotype: whose connections are active.
      mode: how the super-net runs, one of MODES.
      steps: how many steps are timed.
      random_support: another support at every step, instead of the genotype's.
    """
    if random_support and mode == "static":
        raise ValueError("the static net has one support; --random-support needs another mode")
    net = SuperNet(classes=10, cells=cells, channels=channels, regime=regime, dtype=dtype)
    rng = np.random.default_rng(seed)
    support = np.array(genotype.supports(), np.int32)
    state, step = build(net, mode, support, seed)
    batches = [random_batch(rng, batch) for _ in range(2)]
    rss_before = peak_rss_mb()

    start = time.perf_counter()
    lowered = step.lower(*state, *batches)
    traced = time.perf_counter()
    compiled = lowered.compile()
    done = time.perf_counter()

    compilations = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, fun_name="", **__: (
            compilations.append(fun_name) if event == COMPILED and "step" in fun_name else None
        )
    )
    # The first step warms up caches and is not timed.
    times = []
    for _ in range(steps + 1):
        if random_support:
            state = (state[0].replace(support=jnp.asarray(_random_support(rng))), *state[1:])
            jax.block_until_ready(state)
        begin = time.perf_counter()
        *state, loss = jax.block_until_ready(step(*state, *batches))
        times.append(time.perf_counter() - begin)
    if not np.isfinite(loss):
        raise ValueError(f"the loss is {loss} after {steps + 1} steps")
    work = count_supernet(net, None if mode == "dense" else support).multiply_adds
    # b needs a forward pass and the gradients of activations, W those of weights as well.
    per_step = 5 * batch * work
    return {
        "benchmark": "step",
        "mode": mode,
        "batch": batch,
        "channels": channels,
        "cells": cells,
        "dtype": dtype,
        "platform": jax.default_backend(),
        "step_s": round(min(times[1:]), 4),
        "step_s_median": round(float(np.median(times[1:])), 4),
        "trace_s": round(traced - start, 2),
        "compile_s": round(done - traced, 2),
        "temp_mb": round(compiled.memory_analysis().temp_size_in_bytes / 2**20),
        "peak_rss_mb": round(peak_rss_mb()),
        "step_rss_mb": round(peak_rss_mb() - rss_before),
        "multiply_adds": work,
        "multiply_adds_per_step": per_step,
        "fraction_of_matmul_rate": round(2 * per_step / min(times[1:]) / _matmul_rate(), 3),
        "recompilations": len(compilations),
    }


def build(net: SuperNet, mode: str, support: np.ndarray, seed: int):
    """The state (architecture, variables, optimiser states) and the jitted step."""
    key = jax.random.key(seed)
    arch = jax.jit(functools.partial(init_architecture, coding=Coding(), sigma=1e-3))(
        key
    ).arch.replace(support=jnp.asarray(support))
    x = jnp.zeros((1, IMAGE_SIZE, IMAGE_SIZE, 3))
    variables = init_variables(net, key, x, support, coefficients(arch), train=False)
    if mode == "static":
        supports = tuple(tuple(map(tuple, cell.tolist())) for cell in support)
        variables = select_variables(variables, net, supports)
        target = static_net(net, supports)

        def apply(variables, arch: ArchState, x):
            w = coefficients(arch)
            return target.apply(variables, x, train=True, coefficients=w, mutable="batch_stats")

    else:

        def apply(variables, arch: ArchState, x):
            return net.apply(
                variables,
                x,
                arch.support,
                coefficients(arch),
                train=True,
                dense=mode == "dense",
                mutable="batch_stats",
            )

    # The paper's settings, as in configs/cifar10_two_stage.py.
    adam = optax.chain(optax.add_decayed_weights(1e-3), optax.adam(6e-4, b1=0.5))
    sgd = optax.chain(
        optax.clip_by_global_norm(5.0), optax.add_decayed_weights(3e-4), optax.sgd(0.1, 0.9)
    )

    def loss_and_stats(params, arch, stats, images, labels):
        (logits, _), moved = apply({"params": params, "batch_stats": stats}, arch, images)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.mean(), moved["batch_stats"]

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2, 3))
    def step(arch, variables, adam_state, sgd_state, batch_b, batch_w):
        params, stats = variables["params"], variables["batch_stats"]

        def loss_of_b(b):
            return loss_and_stats(params, arch.replace(b=b), stats, *batch_b)

        db, stats = jax.grad(loss_of_b, has_aux=True)(arch.b)
        change, adam_state = adam.update(db, adam_state, arch.b)
        arch = arch.replace(b=optax.apply_updates(arch.b, change))

        def loss_of_w(params):
            return loss_and_stats(params, arch, stats, *batch_w)

        (loss, stats), dw = jax.value_and_grad(loss_of_w, has_aux=True)(params)
        change, moved = sgd.update(dw, sgd_state, params)
        updated = optax.apply_updates(params, change)
        if mode != "static":
            updated, moved = keep_inactive(net, arch.support, (params, sgd_state), (updated, moved))
        return arch, {"params": updated, "batch_stats": stats}, adam_state, moved, loss

    state = (arch, variables, adam.init(arch.b), sgd.init(variables["params"]))
    return state, step


def random_batch(rng, size: int):
    images = rng.standard_normal((size, IMAGE_SIZE, IMAGE_SIZE, 3)).astype(np.float32)
    return jnp.asarray(images), jnp.asarray(rng.integers(0, 10, size))


def _random_support(rng) -> np.ndarray:
    nodes = [rng.choice(num_candidates(j % 4), 2, replace=False) for j in range(8)]
    return np.array(nodes, np.int32).reshape(2, 4, 2)


def peak_rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


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


def table(figures: dict) -> str:
    """The figures for people."""
    lines = [
        *cost_lines(f"one search step, {figures['mode']}", figures),
        f"  multiply-adds     {figures['multiply_adds'] / 1e6:.1f} M per image",
        f"  matmul rate       {100 * figures['fraction_of_matmul_rate']:.0f} % of this machine's",
        f"  recompilations    {figures['recompilations']}",
    ]
    return "\n".join(lines)


def cost_lines(title: str, figures: dict) -> list[str]:
    """What all steps have figures of."""
    return [
        f"{title}: batch {figures['batch']}, {figures['channels']} channels, {figures['cells']} "
        f"cells, {figures['dtype']} on {figures['platform']}",
        f"  step              {figures['step_s']:.3f} s (median {figures['step_s_median']:.3f})",
        f"  trace, compile    {figures['trace_s']:.1f} s, {figures['compile_s']:.1f} s",
        f"  temporary memory  {figures['temp_mb']} MB",
        f"  peak memory       {figures['peak_rss_mb']} MB, {figures['step_rss_mb']} MB of it since "
        "before compiling",
    ]
