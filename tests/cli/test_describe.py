"""`describe` prints the sizes that are counted, as a table and as JSON."""

import json

import pytest
from target_nets import every_operation, target

from istanas_jax.cli.main import main
from istanas_jax.networks import description
from istanas_jax.networks.counting import count
from istanas_jax.space import genotype

# The command

SMALL = ["--channels", "4", "--cells", "3", "--classes", "3"]


@pytest.mark.slow
def test_describe_prints_one_json_line(capsys):
    assert main(["describe", "ISTA_twostage", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["name"] == "ISTA_twostage"
    assert results["genotype"] == genotype.load("ISTA_twostage").to_text()
    sizes = ("net", "channels", "cells", "classes", "image_size")
    assert [results[key] for key in sizes] == ["cifar", 36, 20, 10, 32]
    assert results["parameters"] == 3_316_726
    assert results["parameters_with_auxiliary"] == 3_793_152
    assert results["multiply_adds"] == 515_226_240
    assert results["flops"] == count(target("ISTA_twostage")).flops
    assert len(results["parameters_per_cell"]) == 20
    # At least the output of a full-size cell, at most far less than the sum over all cells.
    assert 4 * 36 * 32**2 * 4 / 1e6 < results["forward_memory_mb"] < 8
    assert "one float32 image" in results["forward_memory_meaning"]


@pytest.fixture
def no_compilation(monkeypatch):
    monkeypatch.setattr(description, "forward_memory", lambda *_: None)


def test_describe_takes_sizes_and_files(capsys, tmp_path, no_compilation):
    cells = every_operation(0)
    path = tmp_path / "cells.json"
    path.write_text(cells.to_json())
    options = ["--net", "imagenet", "--image-size", "64", "--one-stage", "--json"]
    assert main(["describe", str(path), *SMALL, *options]) == 0
    results = json.loads(capsys.readouterr().out)
    net = target(cells, "imagenet", channels=4, cells=3, classes=3, regime="one_stage")
    counts = count(net, 64)
    for key in ("name", "parameters_with_auxiliary", "forward_memory_mb"):
        assert results[key] is None
    assert results["one_stage"] is True
    assert results["parameters"] == counts.parameters
    assert results["flops"] == counts.flops
    assert results["parameters_per_cell"] == [cell.parameters for cell in counts.cells]


def test_describe_prints_a_table(capsys, no_compilation):
    assert main(["describe", "ISTA_onestage", *SMALL]) == 0
    out = capsys.readouterr().out
    counts = count(target("ISTA_onestage", channels=4, cells=3, classes=3))
    for text in (f"{counts.flops:,}", "ISTA_onestage", "3 cells, 3 classes", "cell 2", "unknown"):
        assert text in out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["ISTA_twostag"], "did you mean ISTA_twostage"),
        (["Genotype(normal=1)"], "missing"),
        (["ISTA_twostage", "--net", "imagenet", "--channels", "5"], "must be even"),
    ],
)
def test_bad_input_is_one_sentence(argv, sentence, capsys):
    assert main(["describe", *argv]) == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert (out, err.count("\n")) == ("", 1)


def test_unknown_nets_are_refused():
    with pytest.raises(ValueError, match="unknown net 'mnist'"):
        description.describe(genotype.load("SNAS"), net="mnist")
