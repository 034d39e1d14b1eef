"""The static net of a super-net and a support, and the way back: a plain selection of variables.

A tree of parameters and one that looks like it (momentum, gradients) are selected alike.
"""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp

from istanas_jax.networks import operations
from istanas_jax.networks.cells import operation_name
from istanas_jax.networks.supernet.net import GROUP_NAMES, SuperNet
from istanas_jax.networks.target_net import TargetNet, cell_name
from istanas_jax.space.connections import OTHER_ORDER, edge_index, stride_of
from istanas_jax.space.genotype import Genotype, Support

Path = tuple[str, ...]
SHARED = ("stem", "classifier", "auxiliary")


def static_net(net: SuperNet, supports: tuple[Support, Support]) -> TargetNet:
    """The target net that runs what the super-net runs with this support.

    Args:
      supports: flat indices of each node, strongest first, of the normal and the reduction cell.
    """
    if net.shrink != 1:
        raise ValueError("a static net sees images as they are: give --config.search.shrink=1")
    return TargetNet(
        genotype=Genotype.from_supports(*supports, net.space),
        classes=net.classes,
        cells=net.cells,
        channels=net.channels,
        stem=net.stem,
        regime=net.regime,
        auxiliary=net.auxiliary,
        image_channels=net.image_channels,
        dtype=net.dtype,
    )


def select_params(params: dict, net: SuperNet, supports: tuple[Support, Support]) -> dict:
    """Select the active super-net parameters of a tree, under the static net's names."""
    return _select(params, _active_params(net, supports))


def select_stats(stats: dict, net: SuperNet, supports: tuple[Support, Support]) -> dict:
    """Select the active running statistics, under the static net's names."""
    return _select(stats, _active_stats(net, supports))


def select_variables(variables: dict, net: SuperNet, supports: tuple[Support, Support]) -> dict:
    """Select the parameters and statistics of the static net."""
    return {
        "params": select_params(variables["params"], net, supports),
        "batch_stats": select_stats(variables["batch_stats"], net, supports),
    }


def merge_variables(
    variables: dict, selected: dict, net: SuperNet, supports: tuple[Support, Support]
) -> dict:
    """The super-net's variables with those of the static net put back in their places."""
    return {
        "params": _merge(variables["params"], selected["params"], _active_params(net, supports)),
        "batch_stats": _merge(
            variables["batch_stats"], selected["batch_stats"], _active_stats(net, supports)
        ),
    }


def _connections(net: SuperNet, supports) -> Iterator[tuple[str, str, Any, int, int, str, int]]:
    """Yield (cell, static name, spec, node, predecessor, operation, its number) per connection."""
    for index, plan in enumerate(net.plans()):
        spec = net.spec(plan)
        for node, flat in enumerate(supports[int(plan.reduction)]):
            if net.space.auxiliary:
                flat = (*flat, *map(net.space.beside, flat))
            for k, number in enumerate(flat[OTHER_ORDER]):
                predecessor, op = net.space.split_index(int(number))
                name, operation = operation_name(node, k), net.space.operations[op]
                yield cell_name(index), name, spec, node, predecessor, operation, op


def _active_params(net: SuperNet, supports) -> Iterator[tuple[Path, Path, int | None]]:
    """Yield (path in the static net, path in the super-net, place in the stacked array)."""
    for cell, name, spec, node, predecessor, op, _ in _connections(net, supports):
        group = spec.group(predecessor)
        place = spec.place(group, node, predecessor)
        for weight in spec.shapes(op, spec.strides[group]):
            source = (cell, GROUP_NAMES[spec.reduction][group], op, weight)
            yield (cell, name, weight), source, place
    for index, plan in enumerate(net.plans()):
        regime = operations.REGIMES[net.regime]
        for name, halve in (("pre0", plan.halve), ("pre1", False)):
            for weight in operations.preprocess_shapes(plan.in0, plan.channels, halve, regime):
                path = (cell_name(index), name, weight)
                yield path, path, None


def _active_stats(net: SuperNet, supports) -> Iterator[tuple[Path, Path, Any]]:
    for cell, name, spec, node, predecessor, op, number in _connections(net, supports):
        stride = stride_of(predecessor, spec.reduction)
        norms = operations.num_norms(op, stride, spec.regime)
        if norms:
            place = (edge_index(node, predecessor), number, slice(norms))
            yield (cell, name, "stats"), (cell, "stats"), place
    for index in range(net.cells):
        for n, name in enumerate(("pre0", "pre1")):
            yield (cell_name(index), name, "stats"), (cell_name(index), "pre_stats"), n


def _select(tree: dict, places) -> dict:
    selected: dict = {name: tree[name] for name in SHARED if name in tree}
    for target, source, place in places:
        leaf = _get(tree, source)
        _put(selected, target, leaf if place is None else leaf[place])
    return selected


def _merge(tree: dict, selected: dict, places) -> dict:
    merged = _copy(tree) | {name: selected[name] for name in SHARED if name in tree}
    for target, source, place in places:
        leaf = _get(selected, target)
        if place is not None:
            leaf = jnp.asarray(_get(merged, source)).at[place].set(leaf)
        _put(merged, source, leaf)
    return merged


def _get(tree: dict, path: Path):
    for name in path:
        tree = tree[name]
    return tree


def _put(tree: dict, path: Path, leaf) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = leaf


def _copy(tree):
    return {k: _copy(v) for k, v in tree.items()} if isinstance(tree, dict) else tree
