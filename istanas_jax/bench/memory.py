"""The temporary memory of a search step, by the compiler: ISTA-NAS and DARTS, each in a form that
keeps the outputs of operations for the gradient and in one that runs the operations again.

Nothing is run, so the results do not depend on what else the machine does.
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from istanas_jax.bench.methods import make_task
from istanas_jax.bench.step import mode_task
from istanas_jax.space.genotype import Genotype

# How the net runs, and what is kept for the backward pass: the ways that are compared.
WAYS = (
    ("ista", "dynamic", "recomputes"),
    ("ista", "static", "keeps"),
    ("darts", "dense", "recomputes"),
    ("darts", "dense", "keeps"),
)
NAMES = {"ista": "two-stage ISTA-NAS", "darts": "DARTS, 1st order"}


def run(
    config_of: Callable[[str, dict], ConfigDict],
    genotype: Genotype,
    *,
    batch: int = 64,
    channels: int = 16,
    cells: int = 8,
) -> dict:
    """Compile a search step in each of the WAYS.

    Args:
      config_of: makes the config of a search method, given values of `search` to set.
      genotype: its connections are those of the static net.
    """
    sizes = {"batch": batch, "channels": channels, "cells": cells}
    rows = []
    for method, net, backward in WAYS:
        own = {"darts.recompute": backward == "recomputes"} if method == "darts" else {}
        config = config_of(method, sizes | own)
        task = mode_task(config, genotype, mode="static") if net == "static" else make_task(config)
        devices = task.devices
        compiled = devices.compile(task.lower(devices.replicate(task.start())))
        temporary = compiled.memory_analysis().temp_size_in_bytes / 2**20
        rows.append({"method": method, "net": net, "backward": backward, "temp_mb": temporary})
    return {"benchmark": "memory", **sizes, "rows": rows}


def table(results: dict) -> str:
    """Format the results as text for people."""
    least = min(row["temp_mb"] for row in results["rows"])
    lines = [
        f"a search step's temporary memory by the compiler: batch {results['batch']}, "
        f"{results['channels']} channels, {results['cells']} cells"
    ]
    for row in results["rows"]:
        lines.append(
            f"  {NAMES[row['method']]:<20}{row['net']:<9}{row['backward']:<12}"
            f"{row['temp_mb']:>8,.0f} MB  {row['temp_mb'] / least:>5.1f} times the least"
        )
    return "\n".join(lines)
