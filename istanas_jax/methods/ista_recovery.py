"""Recovery of z between the steps of ISTA-NAS, and the freezing of nodes whose z stands still.

Pure functions on b, z and the support; `ista` decides when they run.
"""

from typing import NamedTuple

import flax.struct
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from istanas_jax.devices.parallel import AXIS
from istanas_jax.sparse_coding.architecture import (
    ArchState,
    Coding,
    Freezing,
    freeze,
    recover,
    settled,
)
from istanas_jax.training.errors import TrainingError
from istanas_jax.training.states import SearchState


@flax.struct.dataclass
class IstaState(SearchState):
    """A search state that also holds what recovery and freezing remember."""

    z_epoch: Float[Array, "cells nodes n"]  # the part of z that must rest, at the epoch's start
    uncertified: Int[Array, ""]  # recoveries in a row without a certified LASSO solution


class Recovered(NamedTuple):
    """A recovery whose support is within the budget."""

    step: int  # before which it is due
    arch: ArchState
    uncertified: Int[Array, ""]
    report: dict[str, Array]
    nodes: int  # how many the budget changed


def recovery_step(
    before: tuple[ArchState, Int[Array, ""]], device: Int[Array, ""], *, coding: Coding
) -> tuple[tuple[ArchState, Int[Array, ""]], dict[str, Array]]:
    """Algorithm 1, line 2: z and its support from b, and a report of how the recovery went.

    Every device recovers by itself, and all must come to the same support. `device`, its number, is
    not used: a step that is mapped over devices must be given something of each.
    """
    arch, uncertified = before
    recovery = recover(arch, coding)
    uncertified = jnp.where(recovery.certified, 0, uncertified + 1)
    report = {
        "uncertified": uncertified,
        "kkt": jnp.where(arch.frozen, 0, recovery.code.kkt),
        "distance": recovery.distance,
        "before": jnp.sort(arch.support, -1),  # an array of its own: a step uses the other up
        "supports": lax.all_gather(recovery.arch.support, AXIS),
    }
    return (recovery.arch, uncertified), report


def epoch_step(
    state: IstaState, *, coding: Coding, freezing: Freezing
) -> tuple[IstaState, Float[Array, "cells nodes"]]:
    """Freeze, between epochs, the nodes whose z stood still; return how far each z moved."""
    distance = distance_moved(state.arch, state.z_epoch, coding=coding)
    arch = freeze(state.arch, distance, freezing)
    return state.replace(arch=arch, z_epoch=settled(state.arch, coding)), distance


def distance_moved(
    arch: ArchState, z_epoch: Float[Array, "cells nodes n"], *, coding: Coding
) -> Float[Array, "cells nodes"]:
    """How far each z is from where it was when the epoch began."""
    return jnp.linalg.norm(settled(arch, coding) - z_epoch, axis=-1)


def recovery_interval(every: str | int, steps_per_epoch: int) -> int:
    """Steps between two recoveries."""
    named = {"epoch": steps_per_epoch, "step": 1}
    if every in named:
        return named[every]
    if str(every).isdigit() and int(every) > 0:
        return int(every)
    raise ValueError(
        f'search.ista.recovery.every is {every!r}, not "epoch", "step" or a number of steps'
    )


def check_agreement(search, step: int, supports: Int[np.ndarray, "devices cells nodes s"]) -> None:
    """Raise if devices recovered different supports: from there on they would drift apart."""
    different = np.flatnonzero((supports != supports[0]).any((1, 2, 3)))
    if len(different):
        found = [
            f"{supports[i].tolist()} (host {device.process_index}, device {device.id})"
            for i, device in enumerate(search.devices.devices)
            if i in (0, different[0])
        ]
        raise TrainingError(
            f"{search.name}: the recovery before step {step} gave {' and '.join(found)}: all "
            "devices must come to the same support"
        )
