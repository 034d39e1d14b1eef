"""What each value of a config may be: one table, by the full name of the key.

A key that is not in the table, as those of a search method of one's own, may have any value but a
number that is not finite.
"""

import math
from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from istanas_jax.methods import METHODS, NOT_OF, OF_ISTA

DECAYS = ("cosine", "linear", "constant")
SCHEDULES = ("two_stage", "one_stage", "retrain", "study")
# Seeds are 32-bit numbers inside jax, and the runs of a config count on from the first.
LAST_SEED = 2**31 - 1 - 10_000


class ConfigError(ValueError):
    """A config that cannot be used, said in one sentence."""


class Rule(NamedTuple):
    """What a value must be, and how to say so."""

    good: Callable[[Any], bool]
    words: str


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return _is_whole(value) and abs(value) < 2**63


def whole(low: int, high: int) -> Rule:
    return Rule(
        lambda value: _is_whole(value) and low <= value <= high,
        f"a whole number from {low:,} to {high:,}",
    )


def even(low: int, high: int) -> Rule:
    return Rule(
        lambda value: whole(low, high).good(value) and value % 2 == 0,
        f"an even number from {low:,} to {high:,}",
    )


def number(low: float, high: float) -> Rule:
    """From low to high, both included."""
    return Rule(
        lambda value: _is_number(value) and low <= value <= high,
        f"a number from {low:g} to {high:,g}",
    )


def positive(high: float) -> Rule:
    """Above 0, up to high."""
    return Rule(
        lambda value: _is_number(value) and 0 < value <= high,
        f"a number above 0, at most {high:,g}",
    )


def each(rule: Rule, lengths: Container[int] = range(10_000)) -> Rule:
    """Several values; `lengths` says how many there may be."""
    return Rule(
        lambda values: (
            isinstance(values, tuple | list)
            and len(values) in lengths
            and all(map(rule.good, values))
        ),
        f"some values, each {rule.words}",
    )


def one_of(*names: str) -> Rule:
    return Rule(lambda value: value in names, f"one of {', '.join(names)}")


FRACTION = Rule(lambda value: _is_number(value) and 0 <= value < 1, "from 0 to below 1")
YES_OR_NO = Rule(lambda value: isinstance(value, bool), "True or False")
TEXT = Rule(lambda value: isinstance(value, str), "a text")
METHOD = Rule(lambda value: value in tuple(METHODS), f"one of {', '.join(METHODS)}")
EVERY = Rule(
    lambda value: value in ("epoch", "step") or (str(value).isdecimal() and 0 < int(value) < 2**31),
    '"epoch", "step" or a number of steps',
)

DATA = {
    "name": TEXT,
    "dir": TEXT,
    "classes": Rule(
        lambda value: _is_whole(value) and (value == 0 or 2 <= value <= 100_000),
        "a whole number from 2 to 100,000, or 0 for as many as the data has",
    ),
    "image_size": whole(0, 4096),
    "image_channels": whole(0, 64),
    "mean": each(number(-100, 100)),
    "std": each(positive(100)),
    "pad": whole(0, 512),
    "flip": YES_OR_NO,
    "holdout": FRACTION,
    "test": FRACTION,
    "limit": whole(0, 10**9),
    "resize": whole(0, 8192),
    "color_jitter": each(number(0, 10), (0, 4)),
    "stream": YES_OR_NO,
    "workers": whole(0, 512),
    "division_seed": whole(0, LAST_SEED),
}
ARCHITECTURE = {
    "nodes": whole(2, 12),  # one node alone has no connection inside its cell
    "s": whole(1, 14),  # the first node has 2 predecessors and 7 operations to choose from
    "m": whole(1, 1000),
    "lam": positive(1.0),
    "sigma": positive(100.0),
    "implicit": YES_OR_NO,
    "columns": one_of("uniform", "sphere"),
    "signed": YES_OR_NO,
    "distinct": YES_OR_NO,
}
RECOVERY = {
    "every": EVERY,
    "max_uncertified": whole(0, 10**6),
    "first": one_of("b", "w"),
    "freeze": one_of("node", "together", "never"),
    "distance": one_of("all", "kept"),
    "epsilon": number(0, 1000),
}
EXPLORE = {
    "draw": YES_OR_NO,
    "shared_weights": YES_OR_NO,
    "one_loss": YES_OR_NO,
    "warmup_epochs": whole(0, 100_000),
}
# What a search reads of `recovery` only where there are two stages, or one.
ONLY_TWO_STAGE = ("search.runs", "search.weights_fraction", "recovery.first")
ONLY_ONE_STAGE = ("recovery.freeze", "recovery.distance", "recovery.epsilon")
CHECKPOINT = {
    "every_minutes": positive(10**6),
    "every_steps": whole(0, 10**9),
    "keep": whole(1, 10_000),
}
SGD = {
    "learning_rate": positive(100.0),
    "final_learning_rate": number(0, 100),
    "decay": one_of(*DECAYS),
    "warmup_epochs": whole(0, 100_000),
    "momentum": FRACTION,
    "weight_decay": number(0, 1),
    "clip": positive(10**6),
}
ADAM = {
    "learning_rate": positive(100.0),
    "b1": FRACTION,
    "b2": FRACTION,
    "weight_decay": number(0, 1),
}
PHASE = {
    "stem": one_of("cifar", "imagenet"),
    "cells": whole(1, 1000),
    "channels": even(2, 4096),  # a factorised reduction halves them
    "auxiliary_weight": number(0, 100),
    "cutout": whole(0, 4096),
    "label_smoothing": FRACTION,
    "sync_norms": YES_OR_NO,
    "accumulate": whole(1, 65_536),
    "dtype": one_of("float32", "bfloat16"),
    "epochs": whole(1, 100_000),
    "batch": whole(1, 1_048_576),
    "runs": whole(1, 10_000),
}
ALPHA = {"sigma": positive(100.0), "recompute": YES_OR_NO}
OWN = {  # of each search method
    "darts": ALPHA,
    "darts_second_order": ALPHA,
    "pc_darts": ALPHA | {"partial": whole(1, 4096), "warmup_epochs": whole(0, 100_000)},
    "snas": ALPHA
    | {
        "temperature": positive(10**6),
        "annealing": number(0, 1000),
        "final_temperature": positive(10**6),
    },
    "nasp": ALPHA,
    "pdarts": ALPHA
    | {
        "stage_cells": each(whole(1, 1000), range(1, 10)),
        "candidates": each(whole(1, 8), range(1, 10)),
        "epochs": whole(1, 100_000),
        "warmup_epochs": whole(0, 100_000),
        "dropout": each(FRACTION, range(1, 10)),
        "dropout_decay": number(0, 1000),
        "max_skips": whole(0, 1000),
    },
    "random": {"genotypes": whole(1, 100_000)},
}
STUDY = {
    "kind": one_of("cost", "correlation", "accuracy", "curves", "quality"),
    "one_stage": YES_OR_NO,
    "methods": each(METHOD),
    "cells": each(TEXT),
    "seeds": whole(1, 10_000),
    "steps": whole(1, 10**6),
    "batches": each(whole(1, 1_048_576)),
    "resamples": whole(1, 10**7),
    "minutes": positive(10**6),
    "trained.methods": each(METHOD),
    "trained.found": whole(0, 10_000),
    "trained.random": whole(0, 10_000),
    "trained.seeds": whole(1, 10_000),
}


def _below(part: str, rules: dict[str, Rule]) -> dict[str, Rule]:
    return {f"{part}.{key}": rule for key, rule in rules.items()}


def _table() -> dict[str, Rule]:
    table = {"seed": whole(0, LAST_SEED), "schedule": one_of(*SCHEDULES), "genotype": TEXT}
    table |= _below("data", DATA) | _below("architecture", ARCHITECTURE)
    table |= _below("recovery", RECOVERY) | _below("checkpoint", CHECKPOINT)
    table |= _below("explore", EXPLORE)
    table |= _below("study", STUDY)
    for phase in ("search", "retrain", "train"):
        table |= _below(phase, PHASE) | _below(f"{phase}.weights", SGD)
    table |= {
        "retrain.one_stage_norms": YES_OR_NO,
        "retrain.drop_path": FRACTION,
        "train.drop_path": FRACTION,
        "search.drop_path": Rule(lambda _: False, "left out: a search drops no paths"),
        "search.method": METHOD,
        "search.weights_fraction": Rule(
            lambda value: _is_number(value) and 0 < value < 1, "between 0 and 1"
        ),
        "search.budget.max_parameters": whole(0, 10**15),
        "search.budget.max_multiply_adds": whole(0, 10**18),
    }
    table |= _below("search.b", ADAM)
    for method, rules in OWN.items():
        table |= _below(f"search.{method}", rules)
        if method != "random":
            table |= _below(f"search.{method}.alpha", ADAM)
    return table


BOUNDS = _table()
# What a schedule needs besides `data`, `checkpoint` and the seed.
PARTS = {
    "two_stage": ("architecture", "recovery", "explore", "search", "retrain"),
    "one_stage": ("architecture", "recovery", "search", "train"),
    "retrain": ("retrain",),
}
# What a config may go without.
OPTIONAL = {
    "data.resize",
    "data.color_jitter",
    "data.stream",
    "data.workers",
    "data.division_seed",
    "train.runs",
    "search.drop_path",
}


def rule_of(key: str) -> Rule | None:
    """Of a key's full name; a study has a one-stage config inside."""
    return BOUNDS.get(key.removeprefix("one_stage."))


def check_values(config: ConfigDict) -> None:
    """Raise a ConfigError that names the first value out of its range, or a key that is missing."""
    values = dict(values_of(config))
    if missing := sorted(key for key in _required(config) if key not in values):
        raise ConfigError(f"the config has no {missing[0]}; give {rule_of(missing[0]).words}")
    for key, value in values.items():
        rule = rule_of(key)
        if rule is not None and not rule.good(value):
            raise ConfigError(f"{key} is {_shown(value)}, it must be {rule.words}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key} is {value}, it must be a finite number")


def _required(config: ConfigDict) -> Iterator[str]:
    """Keys that the schedule and the search method of a config read."""
    yield "schedule"
    schedule = config.get("schedule")
    if schedule not in PARTS:
        return
    search = config.get("search")
    method = search.get("method") if isinstance(search, ConfigDict) else None
    foreign = [f"search.{name}." for name in OWN if name != method]
    foreign += [] if method in (None, "ista") else [f"{key}." for key in OF_ISTA]
    foreign += [f"{key}." for key in NOT_OF.get(method, ())]
    other = ONLY_TWO_STAGE if schedule == "one_stage" else ONLY_ONE_STAGE
    foreign += [f"{key}." for key in other]
    parts = ("seed", "data", "checkpoint", *PARTS[schedule])
    for key in BOUNDS.keys() - OPTIONAL:
        if key.split(".")[0] in parts and not f"{key}.".startswith(tuple(foreign)):
            yield key


def values_of(config: ConfigDict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All keys by their full names, with their values."""
    for key, value in config.items():
        if isinstance(value, ConfigDict):
            yield from values_of(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(value: Any) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except ValueError:  # Python refuses to print a number of thousands of digits
        return "a huge number"
    return text if len(text) <= 60 else f"{text[:57]}..."
