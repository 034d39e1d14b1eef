"""`bench ops`: which operations are timed at which shapes, and what is made of the times."""

import json

import numpy as np
import pytest
from report_runs import make_run, read
from tiny_runs import tiny

from istanas_jax.bench.costs import operations, torch_operations
from istanas_jax.cli.main import main
from istanas_jax.networks import operation_times
from istanas_jax.networks.operation_times import OperationShape, alone, edge_shapes
from istanas_jax.networks.operations import REGIMES, SEARCH
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.space.operations import find_operation
from istanas_jax.space.spaces import DARTS

SMALL = ["--seconds", "0", "--batch", "2", "--operations", "max_pool_3x3,skip_connect"]


def test_shapes_of_the_papers_search_network():
    """Counted by hand: 8 cells of 14 edges, of which the third and the sixth are reductions."""
    assert edge_shapes(SuperNet(classes=10, cells=8, channels=16), 32, 4) == {
        (16, 32, 1): 28,
        (32, 32, 2): 8,
        (32, 16, 1): 6 + 28,
        (64, 16, 2): 8,
        (64, 8, 1): 6 + 28,
    }
    partial = edge_shapes(SuperNet(classes=10, cells=8, channels=16, partial=4), 32, 4)
    assert {shape.channels for shape in partial} == {4, 8, 16}


def test_what_is_timed_is_the_operation_and_its_gradient():
    """The gradient of a pooling sums over its windows, so its entries add up to those given."""
    shape = OperationShape(4, 5, 2)
    pool = alone("avg_pool_3x3", shape, regime=REGIMES["retrain"], batch=2, train=False)
    y, _, (gradient, _) = pool.both(pool.images, pool.weights, pool.stats, pool.gradient)
    assert y.shape == pool.gradient.shape == (2, 3, 3, 4)
    corner = np.mean(pool.images[:, :2, :2], (1, 2))
    np.testing.assert_allclose(y[:, 0, 0], corner, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient.sum((1, 2)), pool.gradient.sum((1, 2)), atol=1e-4)
    in_and_out = 4 * (2 * 25 * 4 + 2 * 9 * 4)
    assert (pool.bytes_forward(), pool.bytes_both()) == (in_and_out, 2 * in_and_out + 4 * 200)


def test_rows_and_their_shares(monkeypatch):
    monkeypatch.setattr(operation_times, "fastest", lambda call, **_: call() and 1e-3)
    monkeypatch.setattr(operations.timing, "copy_rate", lambda: 1e9)
    results = operations.run(tiny(), batch=2, only=("max_pool_3x3", "skip_connect"))
    # One reduction cell of two nodes: 4 edges from its inputs, 1 between its nodes.
    found = [(row["operation"], row["channels"], row["edges"]) for row in results["rows"]]
    channels = 2 * tiny().search.channels
    assert found == [(op, channels, n) for n in (1, 4) for op in ("max_pool_3x3", "skip_connect")]
    pool, skip = results["rows"][:2]
    moved = 4 * 2 * 2 * channels * pool["size"] ** 2  # float32, in and out, two images
    assert pool["forward_share"] == pytest.approx(moved / 1e-3 / 1e9, abs=1e-4)
    assert pool["forward_ms"] == 1.0 and skip["both_share"] is None
    text = operations.table(results)
    assert text.count("max_pool_3x3") == 2 and results["torch"].split()[0] in ("torch", "there")


def test_the_report_shows_them(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    whole = json.loads(tiny().to_json_best_effort())
    (run / "config.json").write_text(json.dumps(whole))
    assert main(["bench", "ops", "--workdir", str(run), "--json", *SMALL]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads((run / "operations.json").read_text()) == printed
    assert main(["report", str(run)]) == 0
    page = read(run / "report.html")
    assert "operations" in [fold.get("id") for fold in page.of("details")]
    assert f"{printed['rows'][0]['forward_ms']:.3f} ms" in page.data["operations"]


def test_bad_input(tmp_path, capsys):
    refused = {
        ("--operations", "conv_9x9"): "there is no operation 'conv_9x9', there are: max_pool_3x3",
        ("--workdir", str(tmp_path)): "holds no run: there is no config.json in it",
        ("--workdir", "x", "--config", "digits"): "takes --config or --workdir",
        ("--config", "cifar10_retrain"): "this config has no search",
    }
    for argv, sentence in refused.items():
        assert main(["bench", "ops", *argv]) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.skipif(bool(torch_operations.why_not()), reason="torch is not installed")
@pytest.mark.parametrize("op", DARTS.operations)
def test_the_yardstick_computes_the_same(op):
    """The module has the shapes of ours, and times are beside ours."""
    import torch

    for stride in (1, 2):
        shape = OperationShape(4, 5, stride)
        layers = find_operation(op).layers_in(stride, SEARCH)
        module = torch_operations.module_of(layers, 4, SEARCH.affine)
        assert module(torch.zeros(2, 4, 5, 5)).shape == (2, 4, shape.out, shape.out)
        ours = alone(op, shape, regime=SEARCH, batch=2, train=True).weights
        count = sum(parameter.numel() for parameter in module.parameters())
        assert count == sum(weight.size for weight in ours.values())
    times = torch_operations.measure(
        op, shape, regime=SEARCH, batch=2, dtype="float32", seconds=0.0
    )
    assert all(time > 0 for time in times.values()) and len(times) == 2
