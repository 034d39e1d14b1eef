"""Sums per channel in one pass."""

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from istanas_jax.devices.platforms import by_platform

_TERMS_PER_REDUCE = 5
_ROWS_PER_SUM = (8, 7, 6, 5, 4, *range(9, 17), 3, 2, 1)


def channel_sums(
    terms: Callable[..., Sequence[Float[Array, "B H W C"]]], *args: Float[Array, "B H W C"]
) -> list[Float[Array, " C"]]:
    """The sums of `terms(*args)` over all but the channels, in one pass over the arguments."""

    def grouped(*args):
        flat = [_rows(term) for term in terms(*args)]
        return grouped_sums(flat, args[0].shape[-1])

    def plain(*args):
        return [jnp.sum(term, (0, 1, 2)) for term in terms(*args)]

    def by_image(*args):
        # In a TPU's vectors lie as many images as the batch has: a sum over both pixels and images
        # adds up across a vector for each of them, eight times as long as it takes to read them.
        sums = [jnp.sum(term, (1, 2)) for term in terms(*args)]
        return [jnp.sum(s, 0) for s in lax.optimization_barrier(sums)]

    return by_platform(*args, cpu=grouped, tpu=by_image, default=plain)


def _rows(x: Float[Array, "B H W C"]) -> Float[Array, "B H WC"]:
    batch, rows, columns, channels = x.shape
    return lax.reshape(x, (batch, rows, columns * channels))


def grouped_sums(terms: Sequence[Array], channels: int) -> list[Array]:
    """Sum over all but the channels, in groups of a few rows and several terms at a time."""
    batch, rows, *rest = terms[0].shape
    group = next(n for n in _ROWS_PER_SUM if rows % n == 0)
    shape = (batch, rows // group, group, *rest)
    terms = [lax.reshape(term, shape) for term in terms]
    share = math.ceil(len(terms) / math.ceil(len(terms) / _TERMS_PER_REDUCE))
    sums = []
    for n in range(0, len(terms), share):
        some = tuple(terms[n : n + share])
        zeros = (jnp.zeros((), some[0].dtype),) * len(some)
        sums += lax.reduce(some, zeros, lambda a, b: tuple(map(lax.add, a, b)), (2,))
    return [lax.reduce_sum(lax.reshape(s, (s.size // channels, channels)), (0,)) for s in sums]
