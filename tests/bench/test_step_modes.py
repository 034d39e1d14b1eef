"""`bench step --mode` times the network that its name promises, in the step of a run."""

import jax
import numpy as np
import pytest

from istanas_jax.bench.step import MODES, mode_task
from istanas_jax.config.files import load_config
from istanas_jax.methods.ista import Ista
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.space.genotype import load

CELLS = load("ISTA_twostage")
INPUTS = {
    "dynamic": {"support", "coefficients"},
    "static": {"coefficients"},
    "dense": {"support", "coefficients", "dense"},
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_runs_the_genotype_in_its_way(mode):
    task = mode_task(load_config("digits:tiny", ["--config.space.nodes=4"]), CELLS, mode=mode)
    task.begin(0)
    method, arch = task.method, task.method.first_variables(task, jax.random.key(0))
    np.testing.assert_array_equal(arch.support, CELLS.supports())
    assert type(task.net) is (TargetNet if mode == "static" else SuperNet)
    if mode == "static":
        assert task.net.genotype == CELLS
    for inputs in (method.network_inputs(arch), method.network_inputs_for_w(arch)):
        assert inputs.keys() == INPUTS[mode] and inputs.get("dense", True) is True
    # Whatever a mode defines takes the place of something that a search calls.
    for own in type(method).__mro__[: type(method).__mro__.index(Ista)]:
        assert {name for name in vars(own) if not name.startswith("_")} <= set(dir(Ista))
