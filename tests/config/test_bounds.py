"""Every value of a config has a range, and what is out of it is refused in a sentence."""

import math

import pytest
from ml_collections import ConfigDict
from shipped_configs import FOLDER, numbers_in, shipped

from istanas_jax.config.bounds import BOUNDS, ConfigError, check_values, rule_of, values_of
from istanas_jax.config.checks import check_config
from istanas_jax.config.files import load_config

DIGITS = str(FOLDER / "digits.py")


def test_every_number_of_every_shipped_config_has_a_range():
    for spec, config in shipped().items():
        for key, value in values_of(config):
            if numbers_in(value):
                assert rule_of(key), f"{key} of {spec}: give it a range in config.bounds"


def test_every_range_is_of_a_key_that_exists():
    keys = {key for config in shipped().values() for key, _ in values_of(config)}
    keys = {key.removeprefix("one_stage.") for key in keys} | {"data.division_seed"}
    keys.add("search.drop_path")  # which is refused
    assert BOUNDS.keys() <= keys


@pytest.mark.parametrize(
    "bad", [math.inf, -math.inf, math.nan, 10**30, -(10**30), "7", None, [], {}]
)
def test_no_number_may_be(bad):
    """Infinite, not a number, huge, or of another type, whatever the key."""
    for config in shipped().values():
        for key, value in values_of(config):
            if numbers_in(value):
                kept = value if not isinstance(value, tuple) else (*value[:-1], bad)
                assert not rule_of(key).good(bad if kept is value else kept), key


def test_any_value_has_an_answer():
    for key, rule in BOUNDS.items():
        for value in (None, [], {}, [[]], {"a": 1}, "", b"", 1e400, object()):
            assert rule.good(value) in (True, False), key


def test_yes_is_no_number():
    for key, rule in BOUNDS.items():
        assert not (rule.good(1) and rule.good(True)), key


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("search.channels=1000000", "it must be a whole number from 2 to 4,096"),
        ("search.cells=1000000000", "it must be a whole number from 1 to 1,000"),
        ("space.nodes=1000", "it must be a whole number from 2 to 12, or 0"),
        ("space.nodes=1", "it must be a whole number from 2 to 12, or 0"),
        ("search.ista.lam=1e30", "it must be a number above 0, at most 1"),
        ("search.weights.learning_rate=inf", "it must be a number above 0, at most 100"),
        ("search.weights.momentum=2", "search.weights.momentum is 2.0, it must be from 0 to below"),
        ("search.weights.weight_decay=nan", "it must be a number from 0 to 1"),
        ("search.ista.adam.b1=1.5", "search.ista.adam.b1 is 1.5, it must be from 0 to below 1"),
        ("data.pad=100000", "it must be a whole number from 0 to 512"),
        ("data.classes=1", "it must be a whole number from 2 to 100,000, or 0"),
        ("data.mean=(nan,)", "it must be some values, each a number from -100 to 100"),
        ("search.epochs=100000000000000000000000", "it must be a whole number from 1 to 100,000"),
        ("seed=4294967296", "seed is 4294967296, it must be a whole number from 0 to"),
        ("seed=-1", "it must be a whole number from 0 to"),
    ],
)
def test_out_of_range(override, sentence):
    with pytest.raises(ConfigError) as error:
        load_config(DIGITS, [f"--config.{override}"])
    assert str(error.value).startswith(override.split("=")[0])
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("methods=ista,dartz", "it must be some values, each one of ista, darts"),
        ("seeds=0", "study.seeds is 0, it must be a whole number from 1"),
    ],
)
def test_studies(override, sentence):
    with pytest.raises(ConfigError) as error:
        load_config(str(FOLDER / "study.py:curves_tiny"), [f"--config.study.{override}"])
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    "key",
    [
        "schedule",
        "seed",
        "data.pad",
        "search.weights.max_gradient_norm",
        "checkpoint",
        "search.ista.recovery.every",
    ],
)
def test_missing_keys_are_named(key):
    config = ConfigDict(load_config(DIGITS).to_dict())
    part, _, name = f".{key}".rpartition(".")
    del (config[part[1:]] if part else config)[name]
    with pytest.raises(ConfigError, match=rf"the config has no {key}.*; give "):
        check_config(config, 1)


def test_a_search_drops_no_paths():
    config = ConfigDict(load_config(DIGITS).to_dict())
    config.search.drop_path = 0.1
    with pytest.raises(
        ConfigError, match=r"search\.drop_path is 0\.1, it must be left out: a sear"
    ):
        check_values(config)


def test_numbers_of_a_method_of_ones_own_are_finite():
    config = ConfigDict(load_config(DIGITS).to_dict())
    config.search.mine = ConfigDict({"scale": 3.5})
    check_values(config)
    config.search.mine.scale = math.nan
    with pytest.raises(ConfigError, match=r"search\.mine\.scale is nan, it must be a finite"):
        check_values(config)
