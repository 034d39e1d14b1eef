"""What `import istanas_jax` offers, and the example that uses it."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from places import ROOT
from sklearn.linear_model import Lasso

import istanas_jax as ista
from istanas_jax import api
from istanas_jax.storage.checkpoint_files import CheckpointError

TINY = f"""
from istanas_jax.config.files import load_config

def get_config():
    small = ["space.nodes=2", "search.cells=1", "train.cells=1"]
    spec = {str(ROOT / "configs" / "digits.py:tiny")!r}
    return load_config(spec, [f"--config.{{each}}" for each in small])
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory, environment):
    """The example, run as a user would: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("example") / "run"
    (config := folder.with_name("tiny.py")).write_text(TINY)
    command = [sys.executable, str(ROOT / "examples" / "digits.py"), str(config), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.mark.slow
def test_example(example):
    folder, said = example
    assert "of the test images are classified correctly" in said
    assert "epoch 0: 0 nodes changed" in said
    assert "certified: True" in said
    run = ista.load_run(folder)
    assert run.config["seed"] == 0
    assert f"{100 * run.result['test_accuracy']:.2f} %" in said
    assert run.genotype == ista.Genotype.from_dict(run.result["genotype"])
    assert run.replay()[0]["step"] == 0
    assert {row["phase"] for row in run.metrics()} == {"search 0", "retrain 0"}


@pytest.mark.slow
def test_run_shows_itself(example):
    run = ista.load_run(example[0])
    page = run._repr_html_()
    assert f"{100 * run.result['test_accuracy']:.2f} % test accuracy" in page
    assert page.count("<svg") == 2
    # The stronger connection of a node has the later place in a genotype.
    replay = run.replay()[-1]
    strongest = np.asarray(replay["support"])[..., 0] // 7
    for cell, nodes in zip(strongest, (run.genotype.normal, run.genotype.reduce), strict=True):
        assert [node[-1].predecessor for node in nodes] == cell.tolist()
    found = json.loads((run.path / "search_0.json").read_text())["coefficients"]
    np.testing.assert_array_equal(np.array(run.coefficients)[..., ::-1], found)


@pytest.mark.slow
def test_network_of_a_run(example):
    trained = ista.load_run(example[0]).network()
    size = (3, trained.image_size, trained.image_size, trained.net.image_channels)
    logits, _ = trained.net.apply(trained.variables, np.zeros(size, np.float32), train=False)
    assert logits.shape == (3, 10)


@pytest.mark.slow
def test_recover_z_is_the_lasso():
    rng = np.random.default_rng(3)
    A, b, lam = rng.uniform(size=(7, 21)), 0.1 * rng.standard_normal(7), 1e-4
    node = ista.recover_z(b, A, lam=lam, s=3)
    model = Lasso(lam / 7, fit_intercept=False, tol=1e-12, max_iter=10**6).fit(A, b)
    np.testing.assert_allclose(node.z, model.coef_, atol=1e-5)
    assert node.support.tolist() == np.argsort(-np.abs(model.coef_))[:3].tolist()
    kept = A[:, node.support]
    E = kept.T @ kept - np.eye(3)
    # Eq. (network_s) in float64; float32 products of numbers up to 1.
    expected = b @ kept - model.coef_[node.support] @ E
    np.testing.assert_allclose(node.coefficients, expected, atol=1e-5)
    assert node.certified


def test_draw_cell():
    svg = ista.draw_cell("ISTA_twostage", "reduction")
    assert svg.startswith("<svg") and "Reduction cell" in svg
    assert svg._repr_svg_() == svg
    with pytest.raises(ValueError, match="unknown cell type 'other'"):
        ista.draw_cell("ISTA_twostage", "other")


def test_folder_without_a_run(tmp_path):
    with pytest.raises(ValueError, match="there is no run in"):
        ista.load_run(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    run = ista.load_run(tmp_path)
    assert (run.result, run.genotype, run.coefficients, run.replay()) == (None, None, None, [])
    assert "not finished" in run._repr_html_()
    with pytest.raises(CheckpointError, match="holds no trained network"):
        run.network()


def test_names_are_documented_and_loaded_late():
    for name in ista.__all__:
        assert getattr(ista, name) is getattr(api, name)
        assert getattr(api, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ista.nothing
    code = "import istanas_jax, sys; assert 'jax' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True
    )


IN_A_LOOP = """
import json, sys
import jax, jax.numpy as jnp
import istanas_jax as ista

twice = jax.jit(lambda x: 2 * x)
compiled = jax.jit(lambda x: 3 * x).lower(jnp.float32(0)).compile()
maps = [twice(1.0).item()]
for folder in sys.argv[2:]:
    ista.run_search(sys.argv[1], folder)
    with open("/proc/self/maps") as file:
        maps.append(len(file.readlines()))
    assert (twice(1.0), twice(2.0), compiled(jnp.float32(2))) == (2, 4, 6)
print(json.dumps(maps[1:]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux limits the memory maps of a process")
def test_runs_in_a_loop_give_their_programs_back(tmp_path, example, environment):
    """And what the caller has compiled works on. A tiny search has 2,000 maps and more."""
    config = example[0].with_name("tiny.py")
    command = [sys.executable, "-c", IN_A_LOOP, config, tmp_path / "first", tmp_path / "second"]
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout.splitlines()[-1])
    assert second < first + 500  # threads and arenas come and go
