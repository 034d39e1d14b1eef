"""How well the latency of a network is predicted, and whether a latency budget is kept.

A table of operations is measured, as before a search. Networks of random cells, at the size of the
config's target net, are timed and compared with what the table says. So is what budgets pick as in
a search, from a random z: each is told to be faster than its strongest connections are.

All networks are timed in turn, and among them one that was timed for the table. `pace` is by how
much it takes longer now: a machine that is shared may have become slower or faster since, and the
budgets are judged at its pace.
"""

import os
from collections.abc import Callable

import jax
import numpy as np
from ml_collections import ConfigDict

from istanas_jax.methods.budget import Budget
from istanas_jax.networks import latency
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.outline import outline
from istanas_jax.space.genotype import Genotype, random_genotype
from istanas_jax.space.spaces import Space, read_space

TIGHTER = 0.85  # a budget, as a share of what the strongest connections would take
TOLERANCE = 0.1  # a measured latency may exceed the budget by so much


def run(
    config: ConfigDict,
    *,
    batch: int = 1,
    nets: int = 20,
    budgets: int = 3,
    seed: int = 0,
    seconds: float | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict:
    """Measure the table, then time so many networks of random cells, and so many of budgets.

    seconds: how long each program is timed, see `timing.fastest`.
    """
    if "search" not in config:
        raise ValueError("this config has no search, so it has no candidates to measure")
    dataset, space = outline(config.data), read_space(config.space)
    phase = config.search if config.schedule == "one_stage" else config.train
    net, size = target_net(config, phase, dataset), dataset.image_size
    measured = latency.measure(net, size, batch, space=space, seconds=seconds, say=say)
    table_ = latency.latencies(measured, net, size, space)
    genotypes = [random_genotype(seed + 1 + number, space) for number in range(nets)]
    limits, chosen = [], []
    rng = np.random.default_rng(seed)
    for _ in range(budgets):
        strength = _random_strength(rng, space)
        strongest = np.argsort(-strength, axis=-1, kind="stable")[..., : space.most]
        limit = TIGHTER * table_.of(Genotype.from_supports(*strongest.tolist(), space))
        try:
            budget = Budget(net, size, space=space, limits=(0, 0, limit), latencies=table_)
        except ValueError as error:  # nothing is as fast: such a z says nothing
            say(str(error))
            continue
        picked, _ = budget.choose(strength, strongest, np.zeros(strength.shape[:2], bool))
        limits.append(limit)
        chosen.append(Genotype.from_supports(*picked.tolist(), space))
    every = [net.genotype, *genotypes, *chosen]
    say(f"latency: timing {len(every)} networks in turn")
    same = [net.clone(genotype=genotype) for genotype in every]
    first, *times = latency.nets_ms(same, size, batch, seconds=seconds)
    pace = first / measured["nets"][-1]["ms"]
    found = [
        {"predicted_ms": round(table_.of(genotype), 4), "measured_ms": round(ms, 4)}
        for genotype, ms in zip(every[1:], times, strict=True)
    ]
    rows = [{"cells": f"random:{seed + 1 + n}"} | row for n, row in enumerate(found[:nets])]
    within = [
        {"limit_ms": round(limit, 4)} | row for limit, row in zip(limits, found[nets:], strict=True)
    ]
    return {
        "benchmark": "latency",
        "platform": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "cores": os.cpu_count(),
        "batch": batch,
        "cells": net.cells,
        "channels": net.channels,
        "base_ms": round(measured["base_ms"], 4),
        "factor": round(measured["factor"], 4),
        "spearman": None if len(rows) < 2 else round(spearman(rows), 4),
        "pace": round(pace, 4),
        "kept": all(r["measured_ms"] <= (1 + TOLERANCE) * pace * r["limit_ms"] for r in within),
        "nets": rows,
        "budgets": within,
    }


def _random_strength(rng, space: Space) -> np.ndarray:
    """As a LASSO leaves it: a few entries of each node that are not 0."""
    strength = np.zeros((2, space.nodes, space.max_candidates))
    for k, j in np.ndindex(2, space.nodes):
        candidates = space.candidates_of(k, j)
        some = rng.choice(candidates, min(6, len(candidates)), replace=False)
        strength[k, j, some] = np.abs(rng.standard_normal(len(some)))
    return strength


def spearman(rows: list[dict]) -> float:
    """The correlation of the ranks of predictions and measurements; ties have their mean rank."""
    ranks = []
    for key in ("predicted_ms", "measured_ms"):
        values = np.array([row[key] for row in rows])
        below = (values[:, None] > values[None]).sum(1)
        equal = (values[:, None] == values[None]).sum(1)
        ranks.append(below + (equal - 1) / 2)
    return float(np.corrcoef(ranks)[0, 1])


def table(results: dict) -> str:
    """Format the results as text for people."""
    images = "an image" if results["batch"] == 1 else f"{results['batch']} images"
    lines = [
        f"latency of networks of {results['cells']} cells and {results['channels']} channels for "
        f"{images} on {results['device']} ({results['platform']}, {results['cores']} cores)",
        f"predicted: {results['base_ms']:.3g} ms + {results['factor']:.3g} times the operations",
        "",
        f"{'cells':<14}{'predicted':>12}{'measured':>12}",
    ]
    for row in results["nets"]:
        lines.append(f"{row['cells']:<14}{_ms(row['predicted_ms'])}{_ms(row['measured_ms'])}")
    if results["spearman"] is not None:
        lines += ["", f"Spearman correlation {results['spearman']:.3f}"]
    if results["budgets"]:
        lines += ["", f"{'at most':>12}{'predicted':>12}{'measured':>12}"]
    for row in results["budgets"]:
        lines.append("".join(_ms(row[f"{key}_ms"]) for key in ("limit", "predicted", "measured")))
    if results["budgets"]:
        kept = "kept" if results["kept"] else "not kept"
        pace = f"now that the machine takes {results['pace']:.2f} times as long as for the table"
        lines.append(f"the budgets are {kept} within a tenth, {pace}")
    return "\n".join(lines)


def _ms(value: float) -> str:
    return f"{value:>9.3f} ms"
