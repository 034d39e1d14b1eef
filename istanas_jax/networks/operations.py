"""What layers compute, as pure functions of an image, weights and batch-norm statistics.

`space.operations` says which layers an operation has; `run_steps` computes them. The networks own
the variables. Images are (B, H, W, C). Weights are float32 and are cast to the image's dtype where
they are used; statistics are computed and kept in float32.

Numerics follow the released code: symmetric padding also at stride 2, pooling that leaves the
padding out, batch norm with epsilon 1e-5 whose running variance is the unbiased one.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from istanas_jax.devices.platforms import by_platform, product
from istanas_jax.networks.batch_norm import Mode, Stats, batch_norm
from istanas_jax.networks.kernels import avg_pool, depthwise_conv, max_pool
from istanas_jax.space import layers
from istanas_jax.space.layers import Layers, NormRegime, Shapes, Step
from istanas_jax.space.operations import STRIDES, find_operation

SEARCH = NormRegime(affine=False, pools=True, identity=False)  # two-stage super-net
ONE_STAGE = NormRegime(affine=True, pools=True, identity=True)  # one-stage super-net and target
RETRAIN = NormRegime(affine=True, pools=False, identity=False)  # two-stage target net
REGIMES = {"search": SEARCH, "one_stage": ONE_STAGE, "retrain": RETRAIN}

MATRIX_UNIT = 128  # rows and columns that a TPU's matrix unit multiplies by

Weights = dict[str, Array]


def num_norms(op: str, stride: int, regime: NormRegime) -> int:
    return find_operation(op).num_norms(stride, regime)


def max_norms(ops: Iterable[str]) -> int:
    """Batch norms of the operation that has most of them: super-nets keep room for as many."""
    counts = (num_norms(op, t, r) for op in ops for t in STRIDES for r in REGIMES.values())
    return max(1, *counts)


def weight_shapes(op: str, channels: int, stride: int, regime: NormRegime) -> Shapes:
    """Names and shapes of an operation's weights: kernels in the order of their use, then norms."""
    return find_operation(op).shapes(channels, stride, regime)


def preprocess_layers(channels: int, halve: bool) -> Layers:
    """The layers that bring a cell's input to its channels and, with `halve`, to half its size."""
    kernel = layers.FactorisedReduction(channels) if halve else layers.Pointwise(channels)
    return (layers.Relu(), kernel, layers.Norm())


def preprocess_shapes(channels_in: int, channels: int, halve: bool, regime: NormRegime) -> Shapes:
    return layers.shapes(preprocess_layers(channels, halve), channels_in, affine=regime.affine)


def init_weight(key: jax.Array, name: str, shape: tuple[int, ...]) -> Array:
    """Initialise a weight by its name: scales 1, shifts 0, kernels U(±1/sqrt(fan-in))."""
    if name.startswith(("scale", "shift")):
        return jnp.full(shape, name.startswith("scale"), jnp.float32)
    bound = 1 / math.sqrt(layers.fan_in(name, shape))
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


@partial(jax.jit, static_argnames=("op", "stride", "mode"))  # traced once for each shape
def apply_op(
    op: str, x: Float[Array, "B H W C"], weights: Weights, stats: Stats, *, stride: int, mode: Mode
) -> tuple[Float[Array, "B Ho Wo C"], Stats]:
    """Return the output, and what the statistics move towards: those of the batch in training.

    Whether pools and identities have a batch norm is told by the number of statistics given.
    """
    return _run_with_stats(find_operation(op).layers(stride), x, weights, stats, mode)


@partial(jax.jit, static_argnames="mode")
def preprocess(
    x: Float[Array, "B H W Cin"], weights: Weights, stats: Stats, *, mode: Mode
) -> tuple[Float[Array, "B Ho Wo C"], Stats]:
    """Bring an input to a cell's channels and size; also return what its statistics move to."""
    return _run_with_stats(
        preprocess_layers(stats.shape[-1], "even" in weights), x, weights, stats, mode
    )


def _run_with_stats(sequence: Layers, x: Array, weights: Weights, stats: Stats, mode: Mode):
    seen = []

    def norm(x, n):
        if n >= stats.shape[0]:
            return x
        y, moments = batch_norm(x, *scale_and_shift(weights, n), stats[n], mode)
        seen.append(moments)
        return y

    y = run_steps(layers.steps(sequence, x.shape[-1]), x, weights, norm)
    return y, jnp.stack(seen) if seen else stats


def scale_and_shift(weights: Weights, n: int) -> tuple[Array | None, Array | None]:
    """Scale and shift of batch norm n; None if it has none."""
    return weights.get(f"scale{n}"), weights.get(f"shift{n}")


def run_steps(
    sequence: Iterable[Step],
    x: Float[Array, "B H W Cin"],
    weights: Weights,
    norm: Callable[[Array, int], Array],
) -> Float[Array, "B Ho Wo C"]:
    """Run numbered layers one after the other; `norm(x, n)` is batch norm n."""
    steps = list(sequence)
    while steps:
        step, *steps = steps
        kernels = [weights[name] for name in step.kernels]
        match step.layer:
            case layers.Identity():
                pass
            case layers.Relu():
                x = relu(x)
            case layers.Norm():
                x = norm(x, step.norm)
            case layers.MaxPool(stride=stride, window=window):
                x = max_pool(x, stride=stride, window=window)
            case layers.AvgPool(stride=stride, window=window, padded=True):
                x = avg_pool(x, stride=stride, window=window)
            case layers.AvgPool(stride=stride, window=window):
                x = nn.avg_pool(x, (window, window), (stride, stride))
            case layers.Depthwise() if steps and isinstance(steps[0].layer, layers.Pointwise):
                (following,), *steps = steps[0].kernels, *steps[1:]
                x = separable(x, *kernels, weights[following], step.layer)
            case layers.Depthwise(stride=stride, dilation=dilation):
                x = depthwise_conv(x, kernels[0].astype(x.dtype), stride=stride, dilation=dilation)
            case layers.Pointwise():
                x = pointwise(x, *kernels)
            case layers.Conv(strides=strides):
                x = conv(x, *kernels, strides=strides)
            case layers.FactorisedReduction():
                x = halve(x, *kernels)
            case layers.Zero(stride=stride):
                x = jnp.zeros_like(x[:, ::stride, ::stride])
            case layers.Noise(stride=stride):
                x = noise(kernels[0], x[:, ::stride, ::stride])
            case other if hasattr(other, "apply"):  # of a file of one's own
                x = other.apply(x, *(kernel.astype(x.dtype) for kernel in kernels))
            case other:
                raise TypeError(f"{other} cannot be computed")
    return x


def halve(
    x: Float[Array, "B H W Cin"], even: Float[Array, "Cin half"], odd: Float[Array, "Cin half"]
) -> Float[Array, "B Ho Wo C"]:
    """Factorised reduction: half of the channels come from even pixels, half from odd ones."""
    later = jnp.pad(x, [(0, 0), (0, 1), (0, 1), (0, 0)])[:, 1::2, 1::2]
    later = later[:, : -(-x.shape[1] // 2), : -(-x.shape[2] // 2)]
    first = pointwise(x[:, ::2, ::2], even)
    return jnp.concatenate([first, pointwise(later, odd)], -1)


def noise(number: Float[Array, "1 1"], x: Float[Array, "B H W C"]) -> Float[Array, "B H W C"]:
    """Noise of the shape of x, by a key that is the bits of a number."""
    bits = lax.bitcast_convert_type(lax.stop_gradient(number).ravel()[0], jnp.int32)
    key = jax.random.fold_in(jax.random.key(0), bits)
    return jax.random.normal(key, x.shape).astype(x.dtype)


def weigh(weight: Float[Array, "..."], y: Float[Array, "B H W C"]) -> Float[Array, "B H W C"]:
    """An operation's output times its coefficient, or times an entry of a table.

    The product is taken in float32 whatever the activations are: the gradient of the weight is a
    sum over all pixels, and bfloat16 stops counting after a few hundred of them.
    """
    wide = jnp.promote_types(y.dtype, jnp.float32)
    return (weight.astype(wide) * y.astype(wide)).astype(y.dtype)


def relu(x):
    return jax.nn.relu(x)  # with gradient 0 at 0, as PyTorch


def pointwise(x: Float[Array, "B H W Cin"], w: Float[Array, "Cin Cout"]):
    """1x1 convolution as a matrix product."""
    return _pointwise(x, w.astype(x.dtype))


def separable(
    x: Float[Array, "B H W C"],
    depthwise: Float[Array, "k k C"],
    w: Float[Array, "C Cout"],
    layer: layers.Depthwise,
) -> Float[Array, "B Ho Wo Cout"]:
    """A depthwise convolution and then a 1x1 convolution.

    On TPUs they are one convolution, whose kernel is the product of the two: as long as the
    channels fit into a matrix unit, multiplying by all of them is cheaper there than having the
    vector unit do the depthwise part (3x3 at 16 channels: 20 µs instead of 121 by the compiler's
    estimate for a v5e, at 144 channels 35 instead of 30).
    """
    stride, dilation = layer.stride, layer.dilation

    def in_turn(x, depthwise, w):
        y = depthwise_conv(x, depthwise.astype(x.dtype), stride=stride, dilation=dilation)
        return pointwise(y, w)

    def at_once(x, depthwise, w):
        kernel = depthwise[..., None] * w[None, None]
        return conv(x, kernel, strides=(stride, stride), dilation=dilation)

    fits = max(w.shape) <= MATRIX_UNIT
    return by_platform(x, depthwise, w, default=in_turn, tpu=at_once if fits else in_turn)


@jax.custom_vjp
def _pointwise(x, w):
    y = product(jnp.matmul, x.reshape(-1, x.shape[-1]), w)
    return y.reshape(*x.shape[:-1], w.shape[-1])


def _pointwise_bwd(residuals, g):
    x, w = residuals
    pixels = lambda v: v.reshape(v.shape[0], -1, v.shape[-1])  # noqa: E731
    wide = jnp.promote_types(x.dtype, jnp.float32)

    def by_image(x, g):
        # XLA's CPU backend sums over 65,536 pixels on one thread, over images on all.
        products = lax.dot_general(
            pixels(x), pixels(g), (((1,), (1,)), ((0,), (0,))), preferred_element_type=wide
        )
        return jnp.sum(products, 0)

    def at_once(x, g):
        sums = partial(jnp.einsum, "bpc,bpd->cd", preferred_element_type=wide)
        return product(sums, pixels(x), pixels(g))

    dw = by_platform(x, g, cpu=by_image, default=at_once)
    return _pointwise(g, w.T), dw.astype(w.dtype)


_pointwise.defvjp(lambda x, w: (_pointwise(x, w), (x, w)), _pointwise_bwd)


def conv(
    x: Float[Array, "B H W Cin"],
    w: Float[Array, "h w Cin Cout"],
    *,
    strides: tuple[int, int] = (1, 1),
    dilation: int = 1,
):
    """Convolution padded by half the kernel, rounded down if it is even, on each side."""
    pad = [(dilation * (k - 1) // 2,) * 2 for k in w.shape[:2]]
    convolve = partial(
        lax.conv_general_dilated,
        window_strides=strides,
        padding=pad,
        rhs_dilation=(dilation, dilation),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return product(convolve, x, w.astype(x.dtype))
