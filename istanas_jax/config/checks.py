"""Whether the values of a config make sense, before anything is read, written or compiled."""

from ml_collections import ConfigDict

from istanas_jax.config.bounds import check_values
from istanas_jax.space.connections import num_predecessors
from istanas_jax.space.layers import Norm
from istanas_jax.space.operations import AUXILIARY_SKIP, NONE, STRIDES, find_operation
from istanas_jax.space.spaces import Space, read_space

PHASES = ("search", "train")


def check_config(config: ConfigDict, devices: int) -> None:
    """Raise a ValueError that says in one sentence what is wrong, if something is."""
    check_values(config)
    if config.schedule == "one_stage" and config.search.method != "ista":
        raise ValueError(
            f"search.method is {config.search.method}, but only ista searches in one stage"
        )
    if "search" in config and config.search.method == "ista":
        _check_ista(config)
    for phase in PHASES:
        if phase not in config:
            continue
        if config[phase].channels % 2 and config[phase].stem == "imagenet":
            raise ValueError(
                f"{phase}.channels is {config[phase].channels}, but it must be even with the stem "
                "imagenet: the first cell halves the channels"
            )
        batch, parts = config[phase].batch, config[phase].microbatches
        if batch % (devices * parts):
            said = f"{devices} devices" + (f" times {parts} parts" if parts > 1 else "")
            raise ValueError(f"{phase}.batch {batch} cannot be divided by {said}")


def _check_ista(config: ConfigDict) -> None:
    space, own = read_space(config.space), config.search.ista
    if config.schedule == "one_stage":
        if space.auxiliary:
            raise ValueError(f"only two-stage runs search spaces with {AUXILIARY_SKIP}")
        _check_absorbable(space)
    budget = own.budget
    if any(budget[key] for key in budget if key.startswith("max_")):
        for given, said in ((space.alike, "space.alike"), (space.auxiliary, AUXILIARY_SKIP)):
            if given:
                raise ValueError(f"search.ista.budget does not work with {said}")
    for node in range(space.nodes if own.distinct else 0):
        if space.kept(node) > num_predecessors(node):
            raise ValueError(
                f"space.s is {space.kept(node)}, but search.ista.distinct wants that many "
                f"different predecessors, and node {node} has {num_predecessors(node)}"
            )
    if "explore" not in own:
        return
    if config.schedule == "one_stage":
        raise ValueError(
            "a one-stage config has a part search.ista.explore; only two-stage searches explore"
        )
    if own.explore.warmup_epochs >= config.search.epochs:
        raise ValueError(
            f"search.ista.explore.warmup_epochs is {own.explore.warmup_epochs}, but it must be "
            f"below search.epochs, {config.search.epochs}, or b never moves"
        )


def _check_absorbable(space: Space) -> None:
    """Raise if the coefficient of an operation cannot be absorbed: its last layer is no norm."""
    for name in space.operations:
        for stride in STRIDES if name != NONE else ():
            *_, last = find_operation(name).layers(stride)
            if not isinstance(last, Norm):
                raise ValueError(
                    f"operation {name} does not end in a batch norm, which a one-stage run needs: "
                    "its coefficient is absorbed there"
                )
