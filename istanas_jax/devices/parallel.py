"""The one place where work is spread over devices and hosts.

A step is `f(state, *batches) -> (state, metrics)`. The state is the same on every device and looks
like any other tree of arrays; batches are split over the devices of all hosts; f averages its
gradients and metrics over `AXIS` itself. Every host runs the same program on its part of a batch.
"""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from istanas_jax.devices.platforms import acting_platform, only

AXIS = "devices"
# By default, which is O2, the TPU compiler tries so many ways to tile each convolution that it had
# not done a search step after ten minutes. With the least effort the step takes it 160 s of
# processor time. A depthwise convolution of 5x5 with its gradients takes it 28 s at O2, 17 at O1
# and 6 at O0, and it expects the programs to run in 573, 616 and 711 us.
# 9 is XLA's number for O0 (19: O1, 29: O2); this jaxlib takes numbers only.
TPU_OPTIONS = {"optimization_level": 9}


class Devices:
    """The devices a run works on: those of all hosts, host by host.

    Args:
      devices: all that jax finds if None.
      acts_as: run the programs of this platform, rounded as there; None: what the environment
        variable ISTANAS_ACT_AS says, and without it those of the devices' own platform.
    """

    def __init__(self, devices: list[jax.Device] | None = None, *, acts_as: str | None = None):
        self.devices = sorted(devices or jax.devices(), key=lambda d: (d.process_index, d.id))
        self.platform = self.devices[0].platform
        self.acts_as = acts_as or acting_platform() or self.platform
        self.hosts = len({device.process_index for device in self.devices})
        mesh = Mesh(np.array(self.devices), (AXIS,))
        self.same = NamedSharding(mesh, PartitionSpec())
        self.parts = NamedSharding(mesh, PartitionSpec(AXIS))

    def __len__(self) -> int:
        return len(self.devices)

    def replicate(self, tree):
        """Put the tree on every device; every host must give the same tree."""
        if self.hosts == 1:
            return jax.device_put(tree, self.same)
        return jax.tree.map(self._replicate, jax.device_get(tree))

    def _replicate(self, x) -> Array:
        x = np.asarray(x)
        return jax.make_array_from_callback(x.shape, self.same, lambda index: x[index])

    def part(self, batch: np.ndarray) -> np.ndarray:
        """This host's part of an array that has one entry for each image of a batch."""
        size = len(batch) // self.hosts
        host = jax.process_index() if self.hosts > 1 else 0
        return batch[host * size : (host + 1) * size]

    def split(self, part: np.ndarray) -> np.ndarray | Array:
        """Reshape this host's part of a batch, (B / hosts, ...), to (devices, B / devices, ...)."""
        local = part.reshape(len(self) // self.hosts, -1, *part.shape[1:])
        if self.hosts == 1:
            return local
        return jax.make_array_from_process_local_data(self.parts, local)

    def split_shape(self, batch: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct | Array:
        """The shape of what `split` returns for a whole batch, for compiling."""
        size, *rest = batch.shape
        if jax.process_count() > 1:  # then pmap's `lower` takes only arrays
            return self.split(np.zeros((size // self.hosts, *rest), batch.dtype))
        shape = (len(self), size // len(self), *rest)
        return jax.ShapeDtypeStruct(shape, batch.dtype, sharding=self.parts)

    def traced(self, f, precision: str = "default"):
        """`f` in the form for these devices, its products in this precision."""
        emulated = self.acts_as != self.platform
        return only(self.acts_as, f, emulated=emulated, precision=precision)

    def map(self, step, batches: int, *, donate: bool = True, precision: str = "default"):
        """Run `step` on all devices at once.

        Args:
          donate: the step may reuse the memory of its state.
          precision: of matrix products and convolutions, one of `precisions.PRECISIONS`.
        """
        return jax.pmap(
            self.traced(step, precision),
            axis_name=AXIS,
            in_axes=(None, *[0] * batches),
            out_axes=None,
            devices=self.devices,
            donate_argnums=(0,) if donate else (),
        )

    def compile(self, lowered):
        """Compile for these devices what `map` or `jit` lowered."""
        options = TPU_OPTIONS if self.platform == "tpu" else None
        return lowered.compile(compiler_options=options)

    def compile_beside(self, lowered, others: Callable[[], None]):
        """Compile a large program on a thread of its own, while `others` compiles the rest.

        Most of the time XLA compiles on one core.
        """
        with ThreadPoolExecutor(1) as thread:
            compiled = thread.submit(self.compile, lowered)
            others()
        return compiled.result()

    def jit(self, f, **options):
        """Compile `f` to run alike on every device, on trees that are the same on all of them."""
        return jax.jit(f, out_shardings=self.same, **options)

    @cached_property
    def _largest(self):
        return self.map(lambda _, x: lax.pmax(x[0], AXIS), 1, donate=False)

    def largest(self, values: np.ndarray) -> np.ndarray | Array:
        """Elementwise maximum over all hosts, computed without waiting for the result."""
        if self.hosts == 1:
            return values
        local = len(self) // self.hosts
        return self._largest((), self.split(np.broadcast_to(values, (local, *values.shape))))


def own_part(draws: Float[Array, "B ..."]) -> Float[Array, "B/devices ..."]:
    """This device's part, inside a step, of random numbers drawn for the whole batch.

    So an image is changed in the same way whatever the number of devices.
    """
    size = draws.shape[0] // lax.axis_size(AXIS)
    return lax.dynamic_slice_in_dim(draws, lax.axis_index(AXIS) * size, size)


def is_leader() -> bool:
    """Whether this host is the one that writes files and prints."""
    return jax.process_index() == 0


def from_leader(value: Any) -> Any:
    """Return host 0's JSON-able value on every host, as JSON holds it: with lists for tuples."""
    text = json.dumps(value)
    if jax.process_count() == 1:
        return json.loads(text)
    text = np.frombuffer(text.encode(), np.uint8)
    length = int(multihost_utils.broadcast_one_to_all(np.int32(len(text))))
    text = text if is_leader() else np.zeros(length, np.uint8)
    return json.loads(multihost_utils.broadcast_one_to_all(text).tobytes())


def on_all_hosts(condition: bool) -> bool:
    """Whether it holds on every host."""
    if jax.process_count() == 1:
        return condition
    return bool(multihost_utils.process_allgather(np.int32(condition)).all())
