"""Weights in the form of the authors' PyTorch release, and back.

PyTorch is not needed here; where it is installed, one line makes a checkpoint ready to load:

    arrays = {k: v.numpy() for k, v in torch.load("weights.pt", map_location="cpu").items()}
    variables = load_release_state(arrays, net)

Release and package name and lay out the same weights differently: see `release_names`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from istanas_jax.deploy.release_names import Correspondence, Path, correspondences
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.space.layers import Shape

_IGNORED = "num_batches_tracked"  # PyTorch counts batches; its fixed momentum does not use them
_SHOWN = 3  # names of a kind in an error message


def load_release_state(arrays: Mapping[str, Any], net: TargetNet | SuperNet) -> dict[str, dict]:
    """Our variables {"params": ..., "batch_stats": ...} from the arrays of a release checkpoint.

    Args:
      arrays: a state dict of the release as arrays; each name may start with DataParallel's
        "module.", and the counters num_batches_tracked are ignored.
      net: the network they belong to; with `auxiliary` if the checkpoint has an auxiliary head.

    Raises a ValueError if an array is missing, left over, or of another shape.
    """
    arrays = {name: array for name, array in arrays.items() if not name.endswith(_IGNORED)}
    if all(name.startswith("module.") for name in arrays):
        arrays = {name.removeprefix("module."): array for name, array in arrays.items()}
    table = list(correspondences(net))
    _check(
        net,
        {name: np.shape(array) for name, array in arrays.items()},
        {entry.name: entry.release_shape for entry in table},
    )
    leaves: dict[Path, np.ndarray] = {}
    for entry in table:
        if entry.path not in leaves:
            leaves[entry.path] = _blank(entry)
        leaves[entry.path][entry.index] = entry.from_release(np.asarray(arrays[entry.name]))
    return unflatten_dict(leaves)


def to_release_state(
    variables: Mapping[str, Any], net: TargetNet | SuperNet
) -> dict[str, np.ndarray]:
    """The arrays under the release's names: what `load_release_state` reads.

    Raises a ValueError if the variables are not those of the network.
    """
    leaves = flatten_dict({key: variables[key] for key in variables})
    table = list(correspondences(net))
    _check(
        net,
        {"/".join(path): np.shape(leaf) for path, leaf in leaves.items()},
        {"/".join(entry.path): entry.shape for entry in table},
    )
    leaves = {path: np.asarray(leaf) for path, leaf in leaves.items()}
    return {entry.name: entry.to_release(leaves[entry.path][entry.index]) for entry in table}


def _blank(entry: Correspondence) -> np.ndarray:
    """A variable to fill; the super-net's statistics of norms that do not exist stay as here."""
    leaf = np.zeros(entry.shape, np.float32)
    if entry.path[0] == "batch_stats":
        leaf[..., 1, :] = 1
    return leaf


def _check(net, found: Mapping[str, Shape], expected: Mapping[str, Shape]) -> None:
    problems = {
        "missing": [name for name in expected if name not in found],
        "left over": [name for name in found if name not in expected],
        "of another shape": [
            f"{name} {found[name]} instead of {shape}"
            for name, shape in expected.items()
            if found.get(name, shape) != shape
        ],
    }
    told = [f"{problem} {_some(names)}" for problem, names in problems.items() if names]
    if told:
        raise ValueError(f"the weights do not fit this {type(net).__name__}: {'; '.join(told)}")


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
