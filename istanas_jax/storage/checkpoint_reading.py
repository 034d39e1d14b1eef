"""States read from checkpoints: checked to the byte, and placed where they are to be used."""

import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from istanas_jax.storage.checkpoint_files import (
    FORMAT,
    CheckpointError,
    load_signed,
    read_arrays,
    type_and_shape,
    verify,
)


class Restored(NamedTuple):
    """A step that was read."""

    step: int
    state: Any
    about: dict


def read_step(folder: str | os.PathLike, step: int, like) -> Restored:
    """Read one step, as `Checkpoints.restore` does, from a folder that nobody writes to."""
    path = epath.Path(folder) / str(step)
    try:
        return Restored(step, *restore(path, like))
    except CheckpointError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise CheckpointError(f"checkpoint {path} cannot be read: {reason}") from error


def named(tree) -> list[tuple[str, Any]]:
    """The leaves with the names that orbax gives them."""
    flat = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path, simple=True, separator="."), x) for path, x in flat]


def restore(path: epath.Path, like) -> tuple[Any, dict]:
    """State and "about" of a step folder, checked."""
    about = verify(load_signed(path))
    _check_fit(like, about, path)
    state = read_arrays(path, about["leaves"])
    placed = [_place(state[name], x) for name, x in named(like)]
    return jax.tree.unflatten(jax.tree.structure(like), placed), about


def _check_fit(like, about: dict, path: epath.Path) -> None:
    if about["format"] != FORMAT:
        raise CheckpointError(f"checkpoint {path} has format {about['format']}, not {FORMAT}")
    saved = {name: said for name, (said, _) in about["leaves"].items()}
    wanted = {name: type_and_shape(x) for name, x in named(like)}
    differing = sorted(n for n in saved | wanted if saved.get(n) != wanted.get(n))
    if differing:
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        names = ", ".join(differing[:3]) + more
        raise CheckpointError(f"checkpoint {path} belongs to another network: {names} differ")


def _place(x: np.ndarray, like) -> jax.Array:
    sharding = getattr(like, "sharding", None)
    if sharding is None or not getattr(like, "committed", True):
        return jnp.array(x)
    if sharding.is_fully_addressable:
        return jax.device_put(x, sharding, may_alias=False)
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])
