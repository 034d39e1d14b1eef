"""The one place where work is spread over devices.

A step is `f(state, *batches) -> (state, metrics)`. The state is the same on every device and looks
like any other tree of arrays; batches are split over the devices; f averages its gradients and
metrics over `AXIS` itself.
"""

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

AXIS = "devices"


class Devices:
    """The devices a run works on."""

    def __init__(self, devices: list[jax.Device] | None = None):
        self.devices = list(devices or jax.local_devices())
        self.same = NamedSharding(Mesh(np.array(self.devices), (AXIS,)), PartitionSpec())

    def __len__(self) -> int:
        return len(self.devices)

    def replicate(self, tree):
        """The tree on every device."""
        return jax.device_put(tree, self.same)

    def split(self, array: np.ndarray) -> np.ndarray:
        """(B, ...) as (devices, B / devices, ...)."""
        return array.reshape(len(self), -1, *array.shape[1:])

    def map(self, step, batches: int, *, donate: bool = True):
        """`step` on all devices at once; the state it is given is used up if `donate`."""
        return jax.pmap(
            step,
            axis_name=AXIS,
            in_axes=(None, *[0] * batches),
            out_axes=None,
            devices=self.devices,
            donate_argnums=(0,) if donate else (),
        )

    def jit(self, f, **options):
        """`f` done alike by every device, on trees that are the same on all of them."""
        return jax.jit(f, out_shardings=self.same, **options)


def own_part(draws: Float[Array, "B ..."]) -> Float[Array, "B/devices ..."]:
    """Inside a step: this device's part of something drawn for the whole batch.

    So that an image is changed in the same way whatever the number of devices.
    """
    size = draws.shape[0] // lax.axis_size(AXIS)
    return lax.dynamic_slice_in_dim(draws, lax.axis_index(AXIS) * size, size)
