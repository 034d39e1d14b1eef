"""A batch in parts, on one device or on several."""

import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from istanas_jax.config import checks
from istanas_jax.config.files import load_config
from istanas_jax.devices.parallel import AXIS, Devices, from_leader, on_all_hosts
from istanas_jax.training.objective import Recipe

BATCH, CHANNELS = 8, 3


def recipe(microbatches: int) -> Recipe:
    return Recipe(
        mean=(0.0,),
        std=(1.0,),
        pad=0,
        flip=False,
        cutout=0,
        label_smoothing=0.0,
        auxiliary_weight=0.0,
        drop_path=0.0,
        sync_norms=False,
        microbatches=microbatches,
        total_steps=1,
    )


def loss_of(w, stats, x, y):
    """The loss of a linear layer on inputs normalised by the statistics of a device's part."""
    mean = x.mean(0)
    logits = (x - mean[None]) / jnp.sqrt(x.var(0) + 0.1)[None] @ w
    loss = jnp.mean((logits[:, 0] - y) ** 2)
    return loss, (logits, {"mean": 0.9 * stats["mean"] + 0.1 * mean})


def gradient(devices: int, microbatches: int):
    rng = np.random.default_rng(0)
    w, stats = rng.normal(size=(CHANNELS, 2)), {"mean": rng.normal(size=CHANNELS)}
    batch = rng.normal(size=(BATCH, CHANNELS)), rng.normal(size=BATCH)

    def step(state, x, y):
        loss, logits, stats, grads = recipe(microbatches).mean_gradient(loss_of, *state, (x, y))
        return loss, lax.all_gather(logits, AXIS, tiled=True), stats, grads

    on = Devices(jax.devices()[:devices])
    state = jax.tree.map(jnp.float32, (w, stats))
    batch = [on.split(x.astype(np.float32)) for x in batch]
    return jax.device_get(on.map(step, 2, donate=False)(state, *batch))


def test_parts_of_a_batch_are_as_devices():
    # The same sums in another order: a few of float32's last bits.
    check = partial(jax.tree.map, partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6))
    whole = gradient(1, 1)
    check(gradient(1, 2), gradient(2, 1))
    check(gradient(2, 2), gradient(1, 4))
    with pytest.raises(AssertionError):  # statistics of a part are not those of the whole
        check(gradient(1, 2), whole)


def test_batch_that_cannot_be_divided():
    config = load_config("configs/digits.py:tiny", ["--config.search.microbatches=3"])
    with pytest.raises(ValueError, match=r"search.batch 16 cannot be .* 2 devices times 3 parts"):
        checks.check_config(config, 2)


def test_one_host_decides_alone():
    assert from_leader({"a": [1]}) == {"a": [1]}
    assert on_all_hosts(True)
    assert not on_all_hosts(False)
    devices = Devices()
    np.testing.assert_array_equal(devices.part(np.arange(4)), np.arange(4))
    np.testing.assert_array_equal(devices.largest(np.array([1, 2])), [1, 2])


RECOVER = """
import numpy as np, jax, jax.numpy as jnp
from functools import partial
from istanas_jax.devices.parallel import Devices
from istanas_jax.methods.ista_recovery import recovery_step
from istanas_jax.sparse_coding.architecture import Coding, draw_architecture
coding, devices = Coding(m=28, columns="sphere"), Devices()
assert len(devices) == 3
state = draw_architecture(jax.random.key(0), coding, sigma=1e-3), jnp.zeros((), jnp.int32)
recover = devices.map(partial(recovery_step, coding=coding), 1, donate=False)
_, report = recover(devices.replicate(state), devices.split(np.arange(3, dtype=np.int32))[:, 0])
assert not report["uncertified"]
"""


@pytest.mark.slow
def test_devices_of_one_cpu_do_not_wait_for_each_other_forever(environment):
    """With a thread per core and no more, this recovery never ended on two cores."""
    own = {name: value for name, value in environment.items() if name != "NPROC"}
    own |= {"JAX_NUM_CPU_DEVICES": "3"}
    subprocess.run([sys.executable, "-c", RECOVER], env=own, check=True, timeout=300)
