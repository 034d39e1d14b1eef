"""How images lie in a TPU's memory."""

import jax
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float

from istanas_jax.devices.platforms import by_platform

LANES = 128


@jax.custom_vjp
def in_lanes(x: Float[Array, "*stack B H W C"]) -> Float[Array, "*stack B H W C"]:
    """Keep images, and their gradient, in the layout that the TPU's convolutions read and write.

    There the lanes of a vector hold the batch, and the channels, of which there are few, lie above
    it. Left alone, the compiler keeps what loops and conditionals carry with the channels in the
    lanes, and copies all of it for every operation: a cell takes three times as long. A batch that
    would leave more lanes empty than the channels do is left to the compiler; so is a batch of any
    size, with which networks are exported.
    """
    batch, channels = x.shape[-4], x.shape[-1]
    if not isinstance(batch, int) or _filled(batch) < _filled(channels):
        return x
    return by_platform(x, default=lambda x: x, tpu=_batch_in_lanes)


def _filled(size: int) -> float:
    """The share of the lanes that an axis of this size fills."""
    return size / (LANES * -(-size // LANES))


def _batch_in_lanes(x):
    stack = x.ndim - 4
    batch, *image = range(stack, x.ndim)
    return with_layout_constraint(x, Layout(major_to_minor=(*range(stack), *image, batch)))


in_lanes.defvjp(lambda x: (in_lanes(x), None), lambda _, g: (in_lanes(g),))
