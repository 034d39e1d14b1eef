"""How well the latency of a network is predicted, and whether a latency budget is kept.

Networks of random cells, at the size of the config's target net, are timed and compared with what
the table of operations says. Then a budget picks cells as in a search, from a random z: each is
told to be faster than its strongest connections are, and what it picks is timed.
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

    def timed(genotype: Genotype) -> dict:
        ms = latency.net_ms(net.clone(genotype=genotype), size, batch, seconds=seconds)
        return {"predicted_ms": round(table_.of(genotype), 4), "measured_ms": round(ms, 4)}

    rows = []
    for number in range(nets):
        genotype = random_genotype(seed + 1 + number, space)
        rows.append({"cells": f"random:{seed + 1 + number}"} | timed(genotype))
        say(f"{rows[-1]['cells']}: {rows[-1]['measured_ms']} ms")
    within, rng = [], np.random.default_rng(seed)
    for _ in range(budgets):
        strength = _random_strength(rng, space)
        strongest = np.argsort(-strength, axis=-1, kind="stable")[..., : space.most]
        limit = TIGHTER * table_.of(Genotype.from_supports(*strongest.tolist(), space))
        try:
            budget = Budget(net, size, space=space, limits=(0, 0, limit), latencies=table_)
        except ValueError as error:  # nothing is as fast: such a z says nothing
            say(str(error))
            continue
        chosen, _ = budget.choose(strength, strongest, np.zeros(strength.shape[:2], bool))
        found = timed(Genotype.from_supports(*chosen.tolist(), space))
        within.append({"limit_ms": round(limit, 4)} | found)
        say(f"within {limit:.3g} ms: {found['measured_ms']} ms")
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
        "kept": all(r["measured_ms"] <= (1 + TOLERANCE) * r["limit_ms"] for r in within),
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
        lines.append(f"the budgets are {kept} within a tenth")
    return "\n".join(lines)


def _ms(value: float) -> str:
    return f"{value:>9.3f} ms"
