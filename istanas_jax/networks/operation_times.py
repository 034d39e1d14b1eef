"""Each operation alone, as a program of its own: at which shapes a network has it, and its time."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float

from istanas_jax.devices.timing import fastest
from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import Mode, init_stats
from istanas_jax.networks.counting import cell_places
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.space.connections import NUM_INPUTS, num_predecessors, stride_of
from istanas_jax.space.layers import NormRegime
from istanas_jax.space.operations import find_operation


class OperationShape(NamedTuple):
    """What an operation is given: square images of so many channels, and its stride."""

    channels: int
    size: int
    stride: int

    @property
    def out(self) -> int:
        """Width of the output in pixels."""
        return -(-self.size // self.stride)


def edge_shape(plan, predecessor: int, outer: int, inner: int, part: int = 1) -> OperationShape:
    """The shape at an edge of a cell; see `counting.cell_places` for the arguments.

    part: one in so many channels goes through the operation.
    """
    size = outer if predecessor < NUM_INPUTS else inner
    return OperationShape(plan.channels // part, size, stride_of(predecessor, plan.reduction))


def edge_shapes(net: SuperNet | TargetNet, image_size: int, nodes: int) -> Counter[OperationShape]:
    """The shapes at which operations may run in a network, and the number of edges of each."""
    part = getattr(net, "partial", 1)
    return Counter(
        edge_shape(plan, predecessor, outer, inner, part)
        for plan, outer, inner in cell_places(net, image_size)
        for node in range(nodes)
        for predecessor in range(num_predecessors(node))
    )


class Alone(NamedTuple):
    """An operation as a program of its own, and what it is given."""

    forward: Callable[..., Any]
    both: Callable[..., Any]  # forward and backward
    images: Float[Array, "B H W C"]
    weights: dict[str, Array]
    stats: Float[Array, "norms 2 C"]
    gradient: Float[Array, "B Ho Wo C"]  # of the output

    def call_forward(self) -> Any:
        return self.forward(self.images, self.weights, self.stats)

    def time_forward(self, **how) -> float:
        """Seconds; `how` goes to `timing.fastest`."""
        return fastest(self.call_forward, **how)

    def time_both(self, **how) -> float:
        given = self.images, self.weights, self.stats, self.gradient
        return fastest(lambda: self.both(*given), **how)

    def bytes_forward(self) -> int:
        """Bytes that must be moved at least: the input and weights once, the output once."""
        return self.images.nbytes + self.gradient.nbytes + _bytes(self.weights)

    def bytes_both(self) -> int:
        """Then also the input and the output's gradient once, and the gradients found."""
        backward = 2 * self.images.nbytes + self.gradient.nbytes + 2 * _bytes(self.weights)
        return self.bytes_forward() + backward


def alone(
    op: str,
    shape: OperationShape,
    *,
    regime: NormRegime,
    batch: int,
    dtype: str = "float32",
    train: bool,
) -> Alone:
    """Make the programs of an operation at a shape; they are compiled when they are called.

    train: normalise by the batch, as in a step; otherwise by the running statistics.
    """
    channels, size, stride = shape
    keys = iter(jax.random.split(jax.random.key(0), 32))
    shapes = operations.weight_shapes(op, channels, stride, regime)
    weights = {name: operations.init_weight(next(keys), name, s) for name, s in shapes.items()}
    images = jax.random.normal(next(keys), (batch, size, size, channels), dtype)
    gradient = jax.random.normal(next(keys), (batch, shape.out, shape.out, channels), dtype)
    mode = Mode(train)

    @jax.jit
    def forward(x, weights, stats):
        return operations.apply_op(op, x, weights, stats, stride=stride, mode=mode)

    @jax.jit
    def both(x, weights, stats, gradient):
        run = lambda x, weights: forward(x, weights, stats)  # noqa: E731
        y, backward, moments = jax.vjp(run, x, weights, has_aux=True)
        return y, moments, backward(gradient)

    stats = init_stats(operations.num_norms(op, stride, regime), channels)
    return Alone(forward, both, images, weights, stats, gradient)


def does_nothing(op: str, shape: OperationShape, regime: NormRegime) -> bool:
    """Whether the output is the input itself."""
    norms = operations.num_norms(op, shape.stride, regime)
    return find_operation(op).is_identity(shape.stride) and not norms


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise if one of the names is no operation that can be measured."""
    for name in names:
        if name not in known:
            raise ValueError(f"there is no operation {name!r}, there are: {', '.join(known)}")


def _bytes(weights: dict[str, Array]) -> int:
    return sum(4 * math.prod(w.shape) for w in weights.values())
