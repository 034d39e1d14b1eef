"""`bench grow`: what is measured, the powers that are fitted, and bends."""

import json

import pytest
from tiny_runs import tiny

from istanas_jax.bench.costs import grow
from istanas_jax.cli.main import main
from istanas_jax.config.files import load_config


@pytest.fixture
def asked(monkeypatch):
    """Instead of measuring: costs by a known law, and a list of the configs that were asked for."""
    configs = []

    def measure(config, steps):
        configs.append(config)
        search, size = config.search, config.data.image_size
        if search.channels > 32:
            return {"out_of_memory": "the step needs 99 GiB"}
        crowded = 3 if search.batch > 128 else 1
        step = 1e-4 * search.batch * size**2 * search.cells**1.5 * crowded
        return {"step_s_median": step, "compile_s": 30.0, "needed_mb": 2 * search.batch}

    monkeypatch.setattr(grow, "measure_apart", measure)
    return configs


def test_powers_and_bends(asked):
    config = load_config("cifar10_two_stage", ["--config.search.batch=64"])
    results = grow.run(config)
    powers = results["exponents"]
    assert powers["cells"]["step_s_median"] == {
        "exponent": 1.5, "between": [1.5, 1.5, 1.5], "bends": False,
    }  # fmt: skip
    assert powers["image_size"]["step_s_median"]["exponent"] == 2
    assert powers["classes"]["compile_s"]["exponent"] == 0
    # From 128 to 256 images the law has a factor of 3 more: log2(6) instead of 1.
    batch = powers["batch"]["step_s_median"]
    assert batch["between"] == [1, 1, 2.585] and batch["bends"]
    assert powers["batch"]["needed_mb"] == {"exponent": 1, "between": [1] * 3, "bends": False}
    # 64 channels did not fit: what is left decides.
    assert len(powers["channels"]["step_s_median"]["between"]) == 2
    assert len(asked) == 1 + 3 * 5  # the config itself once
    assert {config.search.batch for config in asked} == {32, 64, 128, 256}
    text = grow.table(results)
    assert "no memory" in text and "^1.50 " in text and "*" in text


def test_the_config_is_not_changed(asked):
    config = load_config("cifar10_two_stage", [])
    before = config.to_json_best_effort()
    grow.run(config, only=("channels",), factors=(0.01, 1))
    assert config.to_json_best_effort() == before
    assert [config.search.channels for config in asked] == [2, 16]


def test_plot(asked, tmp_path, capsys):
    path = tmp_path / "grow.svg"
    given = ["--only", "batch,cells", "--factors", "1,2", "--plot", str(path), "--json"]
    assert main(["bench", "grow", *given]) == 0
    results = json.loads(capsys.readouterr().out)
    assert list(results["exponents"]) == ["batch", "cells"]
    drawn = path.read_text()
    for words in ("step (s)", "memory (MB)", "batch", "cells", "power 1.50"):
        assert words in drawn


def test_bad_input(capsys):
    assert main(["bench", "grow", "--only", "depth"]) == 2
    assert "there is no size 'depth', there are: batch, channels" in capsys.readouterr().err
    assert main(["bench", "grow", "--config", "cifar10_retrain"]) == 2
    for factors in ("0,1", "a", ""):
        with pytest.raises(SystemExit):
            main(["bench", "grow", "--factors", factors])


@pytest.mark.slow
def test_for_real(environment, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    config = tiny()
    results = grow.run(config, only=("classes",), factors=(1,), steps=1)
    (row,) = results["rows"]
    assert row["step_s_median"] > 0 and row["compile_s"] > 0 and row["commit"]
    assert results["exponents"] == {"classes": {}}
