"""Random crop, flip and cutout on the device, inside the training step.

Everything a batch needs is one draw of uniform numbers, five per image: each further call of
jax.random costs half a second of compilation on a CPU.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt8

DRAWS = 5  # per image: crop row, crop column, flip, cutout row, cutout column


def normalise(
    images: UInt8[Array, "B H W C"], mean: Float[Array, " C"], std: Float[Array, " C"]
) -> Float[Array, "B H W C"]:
    """Pixels of 0 ... 255 as (x / 255 - mean) / std."""
    mean, std = (jnp.asarray(value, jnp.float32)[None, None, None] for value in (mean, std))
    return (images.astype(jnp.float32) / 255 - mean) / std


def draw(key: jax.Array, count: int) -> Float[Array, "B 5"]:
    """What `augment` needs for so many images."""
    return jax.random.uniform(key, (count, DRAWS))


def augment(
    draws: Float[Array, "B 5"],
    images: UInt8[Array, "B H W C"],
    *,
    mean: Float[Array, " C"],
    std: Float[Array, " C"],
    pad: int,
    flip: bool,
    cutout: int,
) -> Float[Array, "B H W C"]:
    """Crop at random after padding with 0, flip half of the images, normalise, cut a square out.

    Args:
      draws: from `draw`, for these images.
      pad: pixels of value 0 added on each side before the crop, as torchvision's RandomCrop.
      flip: mirror left and right with probability 1/2.
      cutout: side of a square set to 0 after normalisation, as DARTS: its centre is any pixel,
        what lies outside the image is lost. An even side reaches one pixel further up and left.

    pad, flip and cutout are static; 0 or False builds no code for that part.
    """
    if not (pad or flip or cutout):
        return normalise(images, mean, std)
    height, width = images.shape[1:3]
    if pad or flip:
        images = _crop(images, draws, pad, flip)
    normalised = normalise(images, mean, std)
    if cutout:
        row, column = _below(draws[:, 3], height), _below(draws[:, 4], width)
        hidden = _within(row, height, cutout)[:, :, None] & _within(column, width, cutout)[:, None]
        normalised = jnp.where(hidden[..., None], 0, normalised)
    return normalised


def _crop(
    images: UInt8[Array, "B H W C"], draws: Float[Array, "B 5"], pad: int, flip: bool
) -> UInt8[Array, "B H W C"]:
    """One gather by row and column; a flip takes the columns in falling order.

    Measured on 2 CPU cores, the whole of `augment` for 256 x 32 x 32 x 3: this 0.7 ms, rows and
    then columns by take_along_axis 0.9, vmapped dynamic_slice 1.0, one-hot products 2.3, a select
    over shifted copies 41.
    """
    batch, height, width = images.shape[:3]
    rows = jnp.arange(height)[None]
    columns = jnp.arange(width)[None]
    if flip:
        columns = jnp.where(draws[:, 2:3] < 0.5, width - 1 - columns, columns)
    if pad:
        images = jnp.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        rows = rows + _below(draws[:, 0], 2 * pad + 1)[:, None]
        columns = columns + _below(draws[:, 1], 2 * pad + 1)[:, None]
    index = (jnp.arange(batch)[:, None, None], rows[:, :, None], columns[:, None, :])
    return images.at[index].get(mode="promise_in_bounds")


def _below(draw: Float[Array, " B"], count: int) -> Int[Array, " B"]:
    """A uniform draw of [0, 1) as one of 0 ... count - 1."""
    return jnp.minimum((draw * count).astype(jnp.int32), count - 1)  # the product may round up


def _within(centre: Int[Array, " B"], size: int, side: int) -> Bool[Array, "B size"]:
    """Which of `size` pixels the square around `centre` covers."""
    offset = jnp.arange(size)[None] - centre[:, None]
    return (offset >= -(side // 2)) & (offset < side - side // 2)
