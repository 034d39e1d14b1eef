"""Checkpoints: what is read is what was written, or it is not read."""

import math
import os
import random
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from saved_states import assert_same, make_state, opened, step_names

from istanas_jax.storage import checkpoints
from istanas_jax.storage.checkpoint_files import CheckpointError, read_about


def test_round_trip_is_exact_to_the_bit(tmp_path):
    state = make_state()
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
    with opened(tmp_path / "a" / "b") as saved:
        saved.save(7, state, about={"epoch": 2, "loss": math.nan}, score=0.5)
        assert saved.latest_step() == 7
        assert_same(saved.restore(state).state, state)
    with opened(tmp_path / "a" / "b") as saved:
        step, restored, about = saved.restore(shapes)
    assert step == 7
    assert_same(restored, state)
    assert about["epoch"] == 2 and math.isnan(about["loss"]) and about["score"] == 0.5
    assert about["format"] == 1 and "T" in about["written"]
    written_by = {"jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "istanas_jax"}
    assert set(about["versions"]) - {"libtpu"} == written_by
    assert about["xla_flags"] == os.environ["XLA_FLAGS"]
    assert str(read_about(tmp_path / "a" / "b")) == str(about)


def test_plain_orbax_reads_it(tmp_path):
    state = make_state()
    with opened(tmp_path) as saved:
        saved.save(3, state, about={"epoch": 1})
    with ocp.StandardCheckpointer() as plain:
        like = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        assert_same(plain.restore(tmp_path / "3" / "state", like), state)
    with ocp.CheckpointManager(tmp_path) as plain:
        args = ocp.args.Composite(about=ocp.args.JsonRestore())
        assert plain.restore(3, args=args).about["epoch"] == 1


def test_placement_follows_like(tmp_path):
    everywhere = jax.sharding.NamedSharding(jax.make_mesh((2,), ("d",)), jax.P())
    state = {
        "free": jnp.arange(4),
        "held": jax.device_put(jnp.arange(5), jax.devices()[1]),
        "replicated": jax.device_put(jnp.arange(6), everywhere),
    }
    with opened(tmp_path) as saved:
        saved.save(1, state, about={})
        restored = saved.restore(state).state
    assert_same(restored, state)
    for name in state:
        assert restored[name].sharding == state[name].sharding
        assert restored[name].committed == state[name].committed


@pytest.mark.parametrize("compiler", ["jit", "pmap"])
def test_donating_right_after_save_harms_neither(tmp_path, compiler):
    """The next step writes over the buffers while the save is under way."""
    lead = (2,) if compiler == "pmap" else ()
    compile_ = jax.pmap if compiler == "pmap" else jax.jit
    step = compile_(lambda tree: jax.tree.map(lambda x: x * 0 - 1, tree), donate_argnums=0)
    state = {str(n): jnp.full((*lead, 200_000), n, jnp.float32) for n in range(1, 9)}
    if compiler == "pmap":
        state = compile_(lambda tree: tree)(state)
    expected = jax.tree.map(np.array, state)
    with opened(tmp_path) as saved:
        first = saved.restore(state)
        saved.save(1, state, about={})
        for _ in range(3):
            state = step(state)
        jax.block_until_ready(state)
        restored = saved.restore(expected).state
        assert first is None
        assert_same(restored, expected)
        if compiler == "pmap":
            restored = compile_(lambda tree: tree)(restored)
        after = step(restored)
        assert jax.tree.leaves(restored)[0].is_deleted()
        assert_same(after, state)


def test_last_and_best_are_kept(tmp_path):
    state = {"w": jnp.arange(3.0)}
    scores = {1: 0.3, 2: 0.9, 3: 0.9, 4: None, 5: float("nan"), 6: 0.1}
    with opened(tmp_path, keep=2) as saved:
        for step, score in scores.items():
            saved.save(step, state, about={}, score=score)
    assert step_names(tmp_path) == {"3", "5", "6"}
    with opened(tmp_path, keep=2) as saved:  # the scores are known to the next run
        saved.save(7, state, about={}, score=0.2)
        saved.save(8, state, about={}, score=0.2, wait=True)
        assert step_names(tmp_path) == {"3", "7", "8"}
        saved.save(9, state, about={}, score=1.0)
    assert step_names(tmp_path) == {"8", "9"}


def test_the_same_step_again_replaces(tmp_path):
    with opened(tmp_path, keep=1) as saved:
        for n in range(3):
            saved.save(5, {"w": jnp.full(3, n)}, about={"n": n}, wait=True)
        restored = saved.restore({"w": jnp.zeros(3, int)})
    assert restored.about["n"] == 2 and restored.state["w"].tolist() == [2, 2, 2]
    assert step_names(tmp_path) == {"5"}
    (tmp_path / "5").rename(tmp_path / "replaced-5")  # killed while step 5 was written anew
    with opened(tmp_path) as saved:
        assert saved.restore({"w": jnp.zeros(3, int)}).about["n"] == 2


def test_nothing_there(tmp_path):
    with opened(tmp_path / "new") as saved:
        assert saved.restore(make_state()) is None and saved.latest_step() is None
    with pytest.raises(CheckpointError, match=r"no checkpoint in .*new"):
        read_about(tmp_path / "new")


def test_due_by_minutes_or_steps(tmp_path):
    now = [1000.0]
    with opened(tmp_path, every_minutes=2, every_steps=50, clock=lambda: now[0]) as saved:
        assert not saved.due_by_steps(49) and saved.due_by_steps(50)
        now[0] += 119
        assert not saved.due_by_clock()
        now[0] += 1
        assert saved.due_by_clock()
        saved.save(30, {"w": jnp.zeros(3)}, about={})
        assert not saved.due_by_clock()
        assert not saved.due_by_steps(79) and saved.due_by_steps(80)
    with opened(tmp_path, every_minutes=2, clock=lambda: now[0]) as saved:
        assert saved.restore({"w": jnp.zeros(3)}).step == 30
        assert not saved.due_by_steps(10**6) and not saved.due_by_clock()
        now[0] += 120
        assert saved.due_by_clock()


def test_a_write_that_fails_is_told(tmp_path, monkeypatch):
    async def full(*_):
        raise OSError("no space left on device")

    with opened(tmp_path) as saved:
        saved.save(1, make_state(1), about={}, wait=True)
        monkeypatch.setattr(ocp.handlers.JsonCheckpointHandler, "_save_fn", full)
        with pytest.raises(CheckpointError, match=r"could not write to .*: no space left"):
            saved.save(2, make_state(2), about={}, wait=True)
        assert saved.latest_step() == 1
        assert_same(saved.restore(make_state()).state, make_state(1))


def test_what_json_cannot_hold_fails_at_once(tmp_path):
    with opened(tmp_path) as saved, pytest.raises(TypeError, match="JSON"):
        saved.save(1, {"w": jnp.zeros(3)}, about={"array": jnp.zeros(3)})
    assert step_names(tmp_path) == set()


def test_seconds_blocked_and_silence(tmp_path, capfd):
    with opened(tmp_path) as saved:
        start = time.perf_counter()
        saved.save(1, make_state(), about={}, wait=True)
        assert 0 < saved.seconds_blocked <= time.perf_counter() - start
    assert capfd.readouterr() == ("", "")


SAVE_IN_A_LOOP = """
import itertools, sys
import jax.numpy as jnp
from istanas_jax.storage.checkpoints import Checkpoints

with Checkpoints(sys.argv[1], keep=2, every_minutes=60) as saved:
    like = {str(n): jnp.zeros((300, 100)) for n in range(20)}
    found = saved.restore(like)
    for step in itertools.count(found.step + 1 if found else 1):
        saved.save(step, {k: v + step for k, v in like.items()}, about={"epoch": step})
        print(step, flush=True)
"""


@pytest.mark.slow
def test_kill_9_leaves_the_older_ones_usable(tmp_path):
    rng = random.Random(0)
    like = {str(n): jnp.zeros((300, 100)) for n in range(20)}
    done = 0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", SAVE_IN_A_LOOP, tmp_path], stdout=subprocess.PIPE, text=True
        ) as process:
            for _ in range(3):  # so that two are whole, and the third under way
                started = int(process.stdout.readline())
            time.sleep(rng.uniform(0, 0.2))
            process.send_signal(signal.SIGKILL)
        told = []
        with opened(tmp_path, warn=told.append) as saved:
            step, state, about = saved.restore(like)
        assert told == [] and done < started - 1 <= step == about["epoch"]
        assert all(np.all(np.asarray(x) == step) for x in state.values())
        assert all(name.isdigit() for name in step_names(tmp_path))
        done = step


FULL = "RESOURCE_EXHAUSTED: Failed to write [tensorstore_spec='{}'] [os_error_code='28']"
LOST = "UNKNOWN: Gloo AllGather failed: Connection closed by peer"


@pytest.mark.parametrize(
    ("hosts", "words", "lost"), [(2, LOST, True), (2, FULL, False), (1, LOST, False)]
)
def test_a_lost_host_is_not_taken_for_a_bad_disk(hosts, words, lost, monkeypatch):
    """The words are those that real runs met; `tests/test_hosts.py` loses a host for real."""
    monkeypatch.setattr(jax, "process_count", lambda: hosts)
    assert checkpoints._of_other_hosts(ValueError(words)) == lost
    assert not checkpoints._of_other_hosts(OSError(28, "No space left on device"))
