"""Two devices come to what one comes to."""

import jax
import numpy as np
import pytest
from tiny_runs import tiny, two_nodes

from istanas_jax.devices.parallel import Devices
from istanas_jax.runs.session import open_session
from istanas_jax.schedules.training import TrainTask

pytestmark = pytest.mark.slow


def after_two_steps(config, workdir, make):
    """The states that one device and two come to."""
    states = []
    with open_session(config, workdir) as session:
        for count in (1, 2):
            devices = Devices(jax.local_devices()[:count])
            task = make(session, devices)
            task.begin(0)
            state = devices.replicate(task.start())
            for batch in list(task.batches(0, 0))[:2]:
                state, totals = task.step(state, *map(devices.split, batch))
            assert int(state.step) == 2
            states.append(jax.device_get((state, totals)))
    return states


def assert_equal_but_for_sums(one, two):
    # Float32 sums in another order, through two steps and some 20 batch norms; the step that W
    # took is 1e-2 or more.
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)


def test_training_on_two_devices_gives_what_one_gives(tmp_path):
    """With batch statistics shared; search does so in test_hosts."""
    config = tiny("train.sync_norms=True", "train.drop_path=0.3", "train.cutout=3")

    def make(session, devices):
        return TrainTask(config, session.dataset, devices, two_nodes(session))

    assert_equal_but_for_sums(*after_two_steps(config, tmp_path, make))
