"""What the files of a run's folder must hold: they are checked as they are read.

Only what is used later is asked for. A run of an older version may have less in its files, and one
of a newer version more.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from istanas_jax.config.bounds import BOUNDS
from istanas_jax.config.ranges import TEXT, Rule, each, number, one_of, whole
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.spaces import read_space
from istanas_jax.training.search_accuracy import IMAGES

ANY_NUMBER = number(-1e300, 1e300)
COUNT = whole(0, 10**15)
SHARE = number(0, 1)
_SHAPE = ("operation", "channels", "size", "stride")


def _is_genotype(value: Any) -> bool:
    try:
        return isinstance(value, dict) and bool(Genotype.from_dict(value))
    except (ValueError, TypeError):
        return False


def _is_space(value: Any) -> bool:
    try:
        return isinstance(value, dict) and bool(read_space(value))
    except (ValueError, TypeError):
        return False


def _is_measured(value: Any) -> bool:
    """Whether it is a number, or what `metrics` writes for NaN and infinities."""
    return ANY_NUMBER.good(value) or value in ("nan", "inf", "-inf")


def _are_sizes(value: Any) -> bool:
    return _have_all(value, {"parameters", "multiply_adds", "reduction"})


def _are_times(value: Any) -> bool:
    return _have_all(value, {*_SHAPE, "edges", "forward_ms", "both_ms"})


def _are_latencies(value: Any) -> bool:
    return _have_all(value, {*_SHAPE, "ms"})


def _have_all(value: Any, keys: set[str]) -> bool:
    """Whether it is a list of objects with at least these keys."""
    return isinstance(value, list) and all(isinstance(x, dict) and keys <= set(x) for x in value)


def _or_null(rule: Rule) -> Rule:
    return Rule(lambda value: value is None or rule.good(value), f"{rule.words} or null")


GENOTYPE = Rule(_is_genotype, "a genotype")
HASH = Rule(
    lambda value: isinstance(value, str) and bool(re.fullmatch(r"[0-9a-f]{16}", value)),
    "16 hexadecimal digits",
)
SPACE = Rule(_is_space, "a search space")
MEASURED = Rule(_is_measured, "a number")
COEFFICIENTS = each(each(each(ANY_NUMBER)), (2,))
SECONDS = Rule(
    lambda value: isinstance(value, dict) and all(map(ANY_NUMBER.good, value.values())),
    "seconds by activity",
)

# A key with a question mark may be missing; what else is in a file may be anything.
_PHASE = {f"{key}?": BOUNDS[f"train.{key}"] for key in ("runs", "epochs")}
_NETWORK = {key: BOUNDS[f"train.{key}"] for key in ("cells", "channels", "stem", "dtype")}
_DATA = {f"{key}?": BOUNDS[f"data.{key}"] for key in ("classes", "image_size", "image_channels")}
SHAPES: dict[str, Any] = {
    r"config\.json": {
        "schedule?": TEXT,
        "data?": _DATA | {"name?": TEXT},
        "space?": SPACE,
        "search?": _PHASE | {"ista?": {"lam?": BOUNDS["search.ista.lam"]}},
        "train?": _PHASE | _NETWORK,
    },
    r"started\.json": {
        "config?": _or_null(TEXT),  # null: the run was started by another program, a notebook
        "overrides?": each(TEXT),
        "command?": _or_null(each(TEXT)),
        "versions?": Rule(lambda value: isinstance(value, dict), "versions by name"),
    },
    r"genotype\.json": GENOTYPE,
    r"search_\d+(_stage_\d+)?\.json": {
        "genotype": GENOTYPE,
        "coefficients": COEFFICIENTS,
        "seconds": SECONDS,
        "accuracy?": MEASURED,
        "accuracy_of?": one_of(*IMAGES),
        "heldout_accuracy?": MEASURED,  # written by earlier versions
        "seed?": COUNT,
        "stopped?": _or_null(TEXT),
    },
    r"(re)?train_\d+\.json": {
        "seconds": SECONDS,
        "seed": COUNT,
        "test_accuracy": SHARE,
        "genotype_hash?": HASH,
    },
    r"sizes\.json": {
        "genotype_hash": HASH,
        "parameters": COUNT,
        "multiply_adds": COUNT,
        "cells": Rule(_are_sizes, "the sizes of cells"),
        "latency?": dict.fromkeys(("predicted_ms", "measured_ms", "batch"), ANY_NUMBER),
    },
    r"latency\.json": {
        "batch": COUNT,
        "operations": Rule(_are_latencies, "the times of operations"),
        "base_ms": ANY_NUMBER,
        "factor": ANY_NUMBER,
    },
    r"operations\.json": {
        "rows": Rule(_are_times, "the times of operations"),
        "device": TEXT,
        "batch": COUNT,
        "copy_gb_s": ANY_NUMBER,
        "torch": TEXT,
    },
    r"result\.json": {
        "genotype": GENOTYPE,
        "test_accuracy": SHARE,
        "test_accuracy_deviation": Rule(
            lambda value: value is None or ANY_NUMBER.good(value), "a number or null"
        ),
        "test_top5_accuracy": SHARE,
        "seeds": each(COUNT),
        "parameters": COUNT,
    },
}
ROW = {
    "phase": TEXT,
    "step": COUNT,
    "epoch?": COUNT,
    "seconds?": SECONDS,
}


def faults(name: str, value: Any) -> Iterator[str]:
    """Say what is wrong with the content of the file of this name."""
    for pattern, shape in SHAPES.items():
        if re.fullmatch(pattern, name):
            yield from _faults(value, shape, "")
    if name.startswith("search_") and not {"accuracy", "heldout_accuracy"} & set(value):
        yield "accuracy is missing"


def row_faults(row: Any) -> Iterator[str]:
    """Say what is wrong with a row of metrics.jsonl or replay.jsonl."""
    return _faults(row, ROW, "")


def _faults(value: Any, shape: Rule | Mapping[str, Any], key: str) -> Iterator[str]:
    if isinstance(shape, Rule):
        if not shape.good(value):
            yield f"{key or 'it'} is not {shape.words}"
    elif not isinstance(value, dict):
        yield f"{key or 'it'} is not a JSON object"
    else:
        for name, inner in shape.items():
            own = name.removesuffix("?")
            if own in value:
                yield from _faults(value[own], inner, f"{key}.{own}" if key else own)
            elif own == name:
                yield f"{f'{key}.{own}' if key else own} is missing"
