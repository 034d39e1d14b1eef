"""What commands share: types of their arguments, and how they print results."""

import argparse
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from istanas_jax.config.files import TRUST


def show(args, results: dict | list, table: Callable[[Any], str]) -> int:
    """Print one JSON line if that is wanted, otherwise the table."""
    print(json.dumps(results) if args.json else table(results))
    return 0


def add_benchmark(
    benchmarks, name: str, run, summary: str, description: str, *, config: str | None = None
):
    """Add a benchmark; `config` is the default of those that take one."""
    benchmark = benchmarks.add_parser(name, help=summary, description=description)
    if config is not None:
        benchmark.add_argument("--config", default=config, metavar="FILE[:VARIANT]", help=TRUST)
    benchmark.add_argument("--json", action="store_true", help="print one JSON line")
    benchmark.set_defaults(run=run)
    return benchmark


def positive(text: str, most: int = 10**9) -> int:
    value = int(text)
    if not 1 <= value <= most:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 to {most:,}")
    return value


def seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 0 to 3600")
    return value


# The largest sizes of a network: as in `config.bounds`.
SIZES = {"channels": 4096, "cells": 1000, "classes": 100_000, "image-size": 4096}
SIZES |= {"batch": 1_048_576, "steps": 10**6}


def size(name: str) -> Callable[[str], int]:
    """The argparse type of an argument that is such a size."""
    return partial(positive, most=SIZES[name])
