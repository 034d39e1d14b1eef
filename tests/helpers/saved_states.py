"""States with all the types in use, and checkpoints of them."""

from pathlib import Path

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from istanas_jax.storage.checkpoints import Checkpoints


@flax.struct.dataclass
class State:
    step: jax.Array
    params: dict
    opt: optax.OptState
    extra: tuple


def make_state(seed: int = 0, width: int = 300) -> State:
    """All the types in use, 0-d arrays, and optimiser states with empty parts."""
    rng = np.random.default_rng(seed)
    params = {
        "conv": {"kernel": jnp.asarray(rng.standard_normal((3, 3, 4, width), np.float32))},
        "half": jnp.asarray(rng.standard_normal((5, 7)), jnp.bfloat16),
    }
    optimiser = optax.chain(
        optax.clip_by_global_norm(5.0),
        optax.add_decayed_weights(3e-4),
        optax.inject_hyperparams(optax.sgd)(learning_rate=0.1, momentum=0.9),
    )
    extra = (
        jnp.asarray(rng.integers(0, 2**32, 9, np.uint32)),
        jnp.array([True, False, True]),
        jnp.array([jnp.nan, -0.0, jnp.inf, 1e-45]),
        None,
        optax.adam(1e-3).init(params["half"]),
    )
    return State(jnp.int32(seed), params, optimiser.init(params), extra)


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def opened(folder, **changes) -> Checkpoints:
    return Checkpoints(folder, **({"keep": 3, "every_minutes": 60} | changes))


def step_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
