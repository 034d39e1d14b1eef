"""The judge: published and hand-made cells, what it refuses, and its fit to the trained cells."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from places import ROOT, SHARED

from istanas_jax.cli.main import main
from istanas_jax.judge import fit, regression
from istanas_jax.look import judgement
from istanas_jax.runs import metrics
from istanas_jax.runs.folder import REPLAY
from istanas_jax.space.genotype import Genotype, load, random_genotype
from istanas_jax.space.spaces import DARTS

CELLS = SHARED / "judge" / "nb301_trained.json"


def cell_of(operation: str, predecessors=(0, 1)):
    op = DARTS.operations.index(operation)
    return [[DARTS.flat_index(p, op) for p in predecessors]] * 4


@pytest.mark.parametrize(
    "name", ["ISTA_twostage", "DARTS_V1", "DARTS_V2", "PDARTS", "PC_DARTS_cifar", "SNAS"]
)
def test_published_cells_are_far_above_random(name):
    assert regression.judge(load(name)).percentile > 98


def test_random_cells_spread_evenly():
    """A percentile is defined so; these seeds are not those of the fit's random cells."""
    found = [regression.judge(random_genotype(10**6 + n)).percentile for n in range(1000)]
    assert np.mean(found) == pytest.approx(50, abs=4)  # 4 standard errors of 29 / sqrt(1000)
    assert np.std(found) == pytest.approx(100 / 12**0.5, abs=3)


def test_hand_made_cells():
    """One operation everywhere: separable convolutions do best, all skip-connections do badly."""
    verdicts = {
        op: regression.judge(Genotype.from_supports(cell_of(op), cell_of(op)))
        for op in DARTS.operations
    }
    ranking = sorted(DARTS.operations, key=lambda op: verdicts[op].accuracy)
    assert set(ranking[-2:]) == {"sep_conv_3x3", "sep_conv_5x5"} and ranking[0] == "avg_pool_3x3"
    assert verdicts["sep_conv_3x3"].percentile > 99 and not verdicts["sep_conv_3x3"].warning
    assert verdicts["skip_connect"].percentile < 50 and verdicts["skip_connect"].warning
    assert verdicts["sep_conv_3x3"].weight_free == (0, 0)
    assert verdicts["max_pool_3x3"].weight_free == (8, 8)


def test_the_verdict_is_the_regression_written_out():
    """Dense vectors and a dot product, from the file alone."""
    genotype = load("ISTA_onestage")
    model = json.loads((Path(regression.__file__).parent / regression.FILE).read_text())
    weights = dict(model["weights"])
    expected, size = model["intercept"], 4 * 35 + 7 + 28
    for number, cell in enumerate(genotype.supports()):
        connections = np.zeros((4, 35))
        for node, picks in enumerate(cell):
            connections[node, list(picks)] += 1
        counts = connections.reshape(4, 5, 7).sum((0, 1))
        products = [counts[a] * counts[b] for a in range(7) for b in range(a, 7)]
        for place, value in enumerate([*connections.ravel(), *counts, *products]):
            expected += weights.get(number * size + place, 0) * value
    assert regression.judge(genotype).accuracy == pytest.approx(expected, abs=1e-9)


def test_cells_without_weights_get_a_warning():
    op = DARTS.operations.index
    skip, conv = op("skip_connect"), op("sep_conv_3x3")
    five_skips = [(skip, 7 + skip), (skip, 7 + skip), (skip, 7 + conv), (conv, 7 + conv)]
    assert "5 of 8" in regression.judge(Genotype.from_supports(five_skips, five_skips)).warning
    free = [(skip, 7 + skip), (0, 7), (1, 8), (conv, 7 + conv)]
    assert "collapsed" in regression.judge(Genotype.from_supports(free, free)).warning
    fewer = [(skip, 7 + skip), (0, 7), (1, 7 + conv), (conv, 7 + conv)]
    assert regression.judge(Genotype.from_supports(fewer, free)).warning is None


@pytest.mark.parametrize("name", ["NASNet_A", "AmoebaNet_A"])
def test_other_cells_are_refused(name, capsys):
    assert main(["judge", name]) == 2
    assert "can be judged" in capsys.readouterr().err


def test_the_judge_is_light():
    """It is asked at every recovery and by pages: nothing of jax or numpy comes with it."""
    code = "import sys, istanas_jax.judge.regression as r; r.coefficients(); "
    code += "print({'jax', 'numpy', 'flax'} & set(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert found.stdout == "set()\n"


def test_judge_of_a_run_follows_its_search(tmp_path, capsys):
    good, bad = load("PC_DARTS_cifar").supports(), [cell_of("max_pool_3x3")] * 2
    with metrics.MetricsLog(tmp_path, REPLAY) as replay:
        for step, support in enumerate((bad, good)):
            replay.write({"phase": "search 0", "step": step, "support": support})
    (row,) = judgement.judge_all([str(tmp_path)])
    assert row["percentiles"][0] < 50 < 99 < row["percentiles"][1]
    assert main(["judge", str(tmp_path), "ISTA_twostage"]) == 0
    out = capsys.readouterr().out
    assert "at the start" in out and "NAS-Bench-301" in out


@pytest.mark.parametrize("words", [[], ["no_such_cell"], ["{folder}"]])
def test_nothing_to_judge_is_one_sentence(words, tmp_path, capsys):
    assert main(["judge", *(word.format(folder=tmp_path) for word in words)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("support", [None, 7, [[1]], [[[0, 99]] * 4] * 2, [[["a", 1]] * 4] * 2])
def test_damaged_replay_is_one_sentence(support, tmp_path, capsys):
    with metrics.MetricsLog(tmp_path, REPLAY) as replay:
        replay.write({"phase": "search 0", "step": 3, "support": support})
    assert main(["judge", str(tmp_path)]) == 2
    assert "replay.jsonl is damaged: the row of step 3" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not CELLS.exists(), reason="the trained cells are not at hand")
def test_the_fit_ranks_unseen_cells_and_is_what_the_package_holds(tmp_path):
    held_out = fit.fit(CELLS, tmp_path / "judge.json")
    assert held_out["spearman"] >= 0.87
    fitted = json.loads((tmp_path / "judge.json").read_text())
    shipped = json.loads((Path(regression.__file__).parent / regression.FILE).read_text())
    for key in ("weights", "random_quantiles"):
        # Rounded to 1e-5 and 1e-4; another linear-algebra library may round the other way.
        np.testing.assert_allclose(fitted[key], shipped[key], atol=2e-4)
    assert fitted["held_out"] == pytest.approx(shipped["held_out"], abs=1e-3)
