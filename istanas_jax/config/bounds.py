"""What each value of a config may be: one table, by the full name of the key.

A search method that is not in the table has the ranges of DARTS for the keys that DARTS has. Any
other key that is not in the table may have any value except a number that is not finite.
"""

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from istanas_jax.config.ranges import (
    EVERY,
    FRACTION,
    STEPS,
    TEXT,
    YES_OR_NO,
    Rule,
    each,
    is_number,
    is_whole,
    number,
    one_of,
    positive,
    whole,
)
from istanas_jax.config.renamed import new_name
from istanas_jax.devices.precisions import PRECISIONS
from istanas_jax.methods import METHODS
from istanas_jax.space.operations import find_operation
from istanas_jax.space.spaces import SPACES, read_space

# Seeds are 32-bit numbers inside jax, and the runs of a config count on from the first.
LAST_SEED = 2**31 - 1 - 10_000


class ConfigError(ValueError):
    """A config that cannot be used, said in one sentence."""


WRITERS = ("wandb", "mlflow")  # services that metrics can go to
METHOD = one_of(*METHODS)
EPOCHS = whole(1, 100_000)
WARMUP = whole(0, 100_000)

TABLES = "darts,darts_second_order,pc_darts,snas,nasp,pdarts,gdas,drnas"  # `methods.tables`

# Names in braces stand for each of them: {search,train}.cells is search.cells and train.cells.
TABLE = {
    "seed": whole(0, LAST_SEED),
    "schedule": one_of("two_stage", "one_stage", "retrain", "study"),
    "genotype": TEXT,
    #
    "data.name": TEXT,
    "data.dir": TEXT,
    "data.classes": Rule(
        lambda value: is_whole(value) and (value == 0 or 2 <= value <= 100_000),
        "a whole number from 2 to 100,000, or 0 for as many as the data has",
    ),
    "data.image_size": whole(0, 4096),
    "data.image_channels": whole(0, 64),
    "data.mean": each(number(-100, 100)),
    "data.std": each(positive(100)),
    "data.pad": whole(0, 512),
    "data.flip": YES_OR_NO,
    "data.holdout_fraction": FRACTION,
    "data.test_fraction": FRACTION,
    "data.max_images": whole(0, 10**9),
    "data.resize": whole(0, 8192),
    "data.color_jitter": each(number(0, 10), (0, 4)),
    "data.stream": YES_OR_NO,
    "data.workers": whole(0, 512),
    "data.division_seed": whole(0, LAST_SEED),
    #
    "checkpoint.every_minutes": positive(10**6),
    "checkpoint.every_steps": whole(0, 10**9),
    "checkpoint.keep_last": whole(1, 10_000),
    #
    "log.writer": Rule(lambda value: value in ("", *WRITERS), "empty, wandb or mlflow"),
    "log.profile": STEPS,
    #
    "space.name": one_of(*SPACES),
    "space.operations": each(TEXT),
    "space.nodes": Rule(  # one node alone has no connection inside its cell
        lambda value: is_whole(value) and (value == 0 or 2 <= value <= 12),
        "a whole number from 2 to 12, or 0 for as many as the named space has",
    ),
    "space.s": each(whole(1, 1000), range(13)),
    "space.candidates": each(each(each(TEXT)), (0, 2)),
    "space.{distinct,alike,zero}": Rule(
        lambda value: value is None or isinstance(value, bool), "True, False or None"
    ),
    #
    "{search,train}.stem": one_of("cifar", "imagenet"),
    "{search,train}.cells": whole(1, 1000),
    "{search,train}.channels": whole(2, 4096),
    "{search,train}.auxiliary_weight": number(0, 100),
    "{search,train}.cutout": whole(0, 4096),
    "{search,train}.label_smoothing": FRACTION,
    "{search,train}.sync_norms": YES_OR_NO,
    "{search,train}.microbatches": whole(1, 65_536),
    "{search,train}.dtype": one_of("float32", "bfloat16"),
    "{search,train}.matmul_precision": one_of(*PRECISIONS),
    "{search,train}.epochs": EPOCHS,
    "{search,train}.batch": whole(1, 1_048_576),
    "{search,train}.runs": whole(1, 10_000),
    "{search,train}.weights.learning_rate": positive(100.0),
    "{search,train}.weights.final_learning_rate": number(0, 100),
    "{search,train}.weights.learning_rate_schedule": one_of("cosine", "linear", "constant"),
    "{search,train}.weights.warmup_epochs": WARMUP,
    "{search,train}.weights.momentum": FRACTION,
    "{search,train}.weights.weight_decay": number(0, 1),
    "{search,train}.weights.max_gradient_norm": positive(10**6),
    #
    "train.drop_path": FRACTION,
    "train.one_stage_norms": YES_OR_NO,
    "train.transfer.source": TEXT,
    "train.transfer.run": whole(0, 10_000),
    "train.transfer.head": one_of("new", "kept"),
    "train.transfer.{stem,cells,head}_rate": number(0, 100),
    #
    "search.method": METHOD,
    "search.drop_path": Rule(lambda _: False, "left out: a search drops no paths"),
    "search.weights_fraction": Rule(
        lambda value: is_number(value) and 0 < value < 1, "between 0 and 1"
    ),
    "search.shrink": whole(1, 64),
    #
    "search.stop.weight_free": whole(0, 1000),
    "search.stop.unchanged_epochs": whole(0, 100_000),
    "search.stop.warning": number(0, 1),
    #
    f"search.{{ista,{TABLES}}}.sigma": positive(100.0),
    f"search.{{ista,{TABLES}}}.adam.learning_rate": positive(100.0),
    f"search.{{ista,{TABLES}}}.adam.{{b1,b2}}": FRACTION,
    f"search.{{ista,{TABLES}}}.adam.weight_decay": number(0, 1),
    f"search.{{{TABLES}}}.recompute": YES_OR_NO,
    "search.ista.m": whole(1, 1000),
    "search.ista.lam": positive(1.0),
    "search.ista.columns": one_of("uniform", "sphere"),
    "search.ista.{signed,distinct,implicit}": YES_OR_NO,
    "search.ista.recovery.every": EVERY,
    "search.ista.recovery.max_uncertified": whole(0, 10**6),
    "search.ista.budget.max_parameters": whole(0, 10**15),
    "search.ista.budget.max_multiply_adds": whole(0, 10**18),
    "search.ista.budget.max_latency_ms": number(0, 10**9),
    "search.ista.budget.latency_batch": whole(1, 1_048_576),
    "search.ista.first_update": one_of("b", "w"),
    "search.ista.explore.{draw,compare,shared_weights,one_loss}": YES_OR_NO,
    "search.ista.explore.warmup_epochs": WARMUP,
    "search.ista.freeze.rule": one_of("node", "together", "never"),
    "search.ista.freeze.distance": one_of("all", "kept"),
    "search.ista.freeze.epsilon": number(0, 1000),
    "search.pc_darts.partial": whole(1, 4096),
    "search.{pc_darts,pdarts,drnas}.warmup_epochs": WARMUP,
    "search.{snas,gdas}.{temperature,final_temperature}": positive(10**6),
    "search.drnas.distance": one_of("l2", "kl"),
    "search.drnas.distance_scale": number(0, 100),
    "search.snas.annealing": number(0, 1000),
    "search.pdarts.stage_cells": each(whole(1, 1000), range(1, 10)),
    "search.pdarts.candidates": each(whole(1, 1000), range(1, 10)),
    "search.pdarts.epochs": EPOCHS,
    "search.pdarts.dropout": each(FRACTION, range(1, 10)),
    "search.pdarts.dropout_decay": number(0, 1000),
    "search.pdarts.max_skips": whole(0, 1000),
    "search.random.genotypes": whole(1, 100_000),
    #
    "study.name": one_of("cost", "correlation", "accuracy", "suite", "curves", "quality"),
    "study.one_stage": YES_OR_NO,
    "study.methods": each(METHOD),
    "study.cells": each(TEXT),
    "study.spaces": each(TEXT),
    "study.seeds": whole(1, 10_000),
    "study.steps": whole(1, 10**6),
    "study.batches": each(whole(1, 1_048_576)),
    "study.resamples": whole(1, 10**7),
    "study.minutes": positive(10**6),
    "study.trained.methods": each(METHOD),
    "study.trained.{found,random}": whole(0, 10_000),
    "study.trained.seeds": whole(1, 10_000),
}


def _expanded(pattern: str) -> Iterator[str]:
    """The keys that a pattern of the table stands for."""
    parts = [part.split(",") for part in re.split(r"[{}]", pattern)]
    return map("".join, itertools.product(*parts))


BOUNDS = {key: rule for pattern, rule in TABLE.items() for key in _expanded(pattern)}
PARTS = ("data", "checkpoint", "log", "space", "search", "train")
# Parts and keys that a schedule or a search method does not read.
NOT_READ = {
    "retrain": ("space", "search"),
    "one_stage": (
        "search.runs",
        "search.weights_fraction",
        "search.shrink",
        "search.ista.first_update",
        "search.ista.explore",
        "train.runs",
        "train.one_stage_norms",
    ),
    "two_stage": ("search.ista.freeze",),
    "pdarts": ("search.cells", "search.epochs"),
}
# What a config may go without.
OPTIONAL = {
    "data.resize",
    "data.color_jitter",
    "data.stream",
    "data.workers",
    "data.division_seed",
    "search.drop_path",
    "search.shrink",
    *(key for key in BOUNDS if key.startswith(("train.transfer.", "log."))),
}


def rule_of(key: str) -> Rule | None:
    """What the value of this key must be; a study has a one-stage config inside."""
    key = key.removeprefix("one_stage.")
    as_darts = re.sub(r"^search\.\w+\.", "search.darts.", key)
    return BOUNDS.get(key) or BOUNDS.get(as_darts)


def check_values(config: ConfigDict) -> None:
    """Raise a ConfigError that names the first value out of its range, or a key that is missing."""
    values = dict(values_of(config))
    for key in values:
        if now := new_name(key):
            raise ConfigError(f"{key} is now called {now}")
    if missing := sorted(key for key in _required(config) if key not in values):
        raise ConfigError(f"the config has no {missing[0]}; give {rule_of(missing[0]).words}")
    for key, value in values.items():
        rule = rule_of(key)
        if rule is not None and not rule.good(value):
            raise ConfigError(f"{key} is {_shown(value)}, it must be {rule.words}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key} is {value}, it must be a finite number")
    if "space" in config:
        _check_space(config.space)


def _check_space(block: ConfigDict) -> None:
    try:
        for name in read_space(block).operations:
            find_operation(name)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _required(config: ConfigDict) -> Iterator[str]:
    """Keys that the schedule and the search method of a config read."""
    yield "schedule"
    schedule = config.get("schedule")
    if schedule in (None, "study"):
        return
    search = config.get("search")
    method = search.get("method") if hasattr(search, "get") else None
    not_read = (*NOT_READ.get(schedule, ()), *not_read_by(method))
    for key in BOUNDS.keys() - OPTIONAL:
        if key.split(".")[0] in ("seed", *PARTS) and not _within(key, not_read):
            yield key


def not_read_by(method: str | None) -> tuple[str, ...]:
    """Keys of `search` that a method has no use for, the blocks of the other methods among them."""
    others = (f"search.{name}" for name in METHODS if name != method)
    return (*others, *NOT_READ.get(method, ()))


def _within(key: str, parts: tuple[str, ...]) -> bool:
    return any(key == part or key.startswith(f"{part}.") for part in parts)


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
