"""The operations of a cell as pure functions of an image, their weights and batch-norm statistics.

The networks own the variables, this file says what they look like (`weight_shapes`, `num_norms`)
and what is computed from them (`apply_op`). Images are (B, H, W, C); convolution kernels
(h, w, in, out), depthwise ones (h, w, C), 1x1 ones (in, out). Weights are float32 and are cast to
the image's dtype where they are used; statistics are computed and kept in float32.

Numerics follow the released code: symmetric padding also at stride 2, pooling that leaves the
padding out, batch norm with epsilon 1e-5 whose running variance is the unbiased one.
"""

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from istanas_jax.devices.platforms import by_platform
from istanas_jax.networks.batch_norm import Mode, Stats, batch_norm
from istanas_jax.networks.kernels import avg_pool, depthwise_conv, max_pool

MAX_NORMS = 2  # a separable convolution has two batch norms, everything else at most one

Weights = dict[str, Array]


@dataclass(frozen=True)
class NormRegime:
    """Which batch norms a network has."""

    affine: bool  # scale and shift
    pools: bool  # one after each pooling
    identity: bool  # one after each stride-1 skip-connection


SEARCH = NormRegime(affine=False, pools=True, identity=False)  # two-stage super-net
ONE_STAGE = NormRegime(affine=True, pools=True, identity=True)  # one-stage super-net and target
RETRAIN = NormRegime(affine=True, pools=False, identity=False)  # two-stage target net
REGIMES = {"search": SEARCH, "one_stage": ONE_STAGE, "retrain": RETRAIN}


def kernel_size(op: str) -> int:
    return int(op[-1])


def num_norms(op: str, stride: int, regime: NormRegime) -> int:
    if op.startswith("sep_conv"):
        return 2
    if op.endswith("pool_3x3"):
        return int(regime.pools)
    if op == "skip_connect" and stride == 1:
        return int(regime.identity)
    return 1


def weight_shapes(
    op: str, channels: int, stride: int, regime: NormRegime
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of an operation's weights, in the order in which they are used."""
    c, shapes = channels, {}
    if op.startswith(("sep_conv", "dil_conv")):
        k = kernel_size(op)
        for n in range(num_norms(op, stride, regime)):
            shapes |= {f"depthwise{n}": (k, k, c), f"pointwise{n}": (c, c)}
    elif op == "conv_7x1_1x7":
        shapes = {"conv0": (1, 7, c, c), "conv1": (7, 1, c, c)}
    elif op == "skip_connect" and stride == 2:
        shapes = {"even": (c, c // 2), "odd": (c, c // 2)}
    if regime.affine:
        for n in range(num_norms(op, stride, regime)):
            shapes |= norm_shapes(c, n)
    return shapes


def norm_shapes(channels: int, n: int = 0) -> dict[str, tuple[int, ...]]:
    return {f"scale{n}": (channels,), f"shift{n}": (channels,)}


def init_weight(key: jax.Array, name: str, shape: tuple[int, ...]) -> Array:
    """A weight by its name: scales 1, shifts 0, kernels U(±1/sqrt(fan-in))."""
    if name.startswith(("scale", "shift")):
        return jnp.full(shape, name.startswith("scale"), jnp.float32)
    bound = 1 / math.sqrt(fan_in(name, shape))
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def fan_in(name: str, shape: tuple[int, ...]) -> int:
    """Inputs that an output of the kernel sums over; leading axes stack several kernels."""
    if name.startswith("depthwise"):
        return math.prod(shape[-3:-1])
    return math.prod(shape[-4:-1]) if name.startswith("conv") else shape[-2]


@partial(jax.jit, static_argnames=("op", "stride", "mode"))  # traced once for each shape
def apply_op(
    op: str, x: Float[Array, "B H W C"], weights: Weights, stats: Stats, *, stride: int, mode: Mode
) -> tuple[Float[Array, "B Ho Wo C"], Stats]:
    """The output, and what the statistics should move towards: in training those of the batch.

    Whether pools and identities have a batch norm is told by the number of statistics given.
    """
    norm = _Norms(weights, stats, mode)
    if op.startswith(("sep_conv", "dil_conv")):
        dilation = 2 if op.startswith("dil_conv") else 1
        for n in range(stats.shape[0]):
            x = depthwise_conv(
                relu(x),
                weights[f"depthwise{n}"].astype(x.dtype),
                stride=stride if n == 0 else 1,
                dilation=dilation,
            )
            x = norm(pointwise(x, weights[f"pointwise{n}"]))
    elif op == "conv_7x1_1x7":
        x = conv(relu(x), weights["conv0"], strides=(1, stride))
        x = norm(conv(x, weights["conv1"], strides=(stride, 1)))
    elif op == "skip_connect" and stride == 2:
        x = norm(halve(x, weights))
    else:
        if op != "skip_connect":
            pool = {"max_pool_3x3": max_pool, "avg_pool_3x3": avg_pool}[op]
            x = pool(x, stride=stride)
        if stats.shape[0]:
            x = norm(x)
    return x, norm.batch_stats()


@partial(jax.jit, static_argnames="mode")
def preprocess(
    x: Float[Array, "B H W Cin"], weights: Weights, stats: Stats, *, mode: Mode
) -> tuple[Float[Array, "B Ho Wo C"], Stats]:
    """A cell's input brought to its channels: ReLU, 1x1 convolution (factorised reduction, if the
    weights are those of one), batch norm."""
    norm = _Norms(weights, stats, mode)
    y = halve(x, weights) if "even" in weights else pointwise(relu(x), weights["pointwise0"])
    return norm(y), norm.batch_stats()


def preprocess_shapes(
    channels_in: int, channels: int, halve: bool, regime: NormRegime
) -> dict[str, tuple[int, ...]]:
    if halve:
        shapes = {"even": (channels_in, channels // 2), "odd": (channels_in, channels // 2)}
    else:
        shapes = {"pointwise0": (channels_in, channels)}
    return shapes | (norm_shapes(channels) if regime.affine else {})


def halve(x, weights: Weights):
    """Factorised reduction: one half of the channels from even pixels, the other from odd ones."""
    x = relu(x)
    odd = jnp.pad(x, [(0, 0), (0, 1), (0, 1), (0, 0)])[:, 1::2, 1::2]
    odd = odd[:, : -(-x.shape[1] // 2), : -(-x.shape[2] // 2)]
    even = pointwise(x[:, ::2, ::2], weights["even"])
    return jnp.concatenate([even, pointwise(odd, weights["odd"])], -1)


def relu(x):
    return jax.nn.relu(x)  # with gradient 0 at 0, as PyTorch


def pointwise(x: Float[Array, "B H W Cin"], w: Float[Array, "Cin Cout"]):
    """1x1 convolution as a matrix product."""
    return _pointwise(x, w.astype(x.dtype))


@jax.custom_vjp
def _pointwise(x, w):
    return (x.reshape(-1, x.shape[-1]) @ w).reshape(*x.shape[:-1], w.shape[-1])


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
        return jnp.einsum("bpc,bpd->cd", pixels(x), pixels(g), preferred_element_type=wide)

    dw = by_platform(x, g, cpu=by_image, default=at_once)
    return _pointwise(g, w.T), dw.astype(w.dtype)


_pointwise.defvjp(lambda x, w: (_pointwise(x, w), (x, w)), _pointwise_bwd)


def conv(
    x: Float[Array, "B H W Cin"],
    w: Float[Array, "h w Cin Cout"],
    *,
    strides: tuple[int, int] = (1, 1),
    padding: int | None = None,
):
    """Convolution padded by half the kernel on each side, or by `padding`."""
    pad = [((k - 1) // 2 if padding is None else padding,) * 2 for k in w.shape[:2]]
    return lax.conv_general_dilated(
        x, w.astype(x.dtype), strides, pad, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


class _Norms:
    """The batch norms of one operation, called in the order of their statistics."""

    def __init__(self, weights: Weights, stats: Stats, mode: Mode):
        self._weights, self._stats, self._mode, self._batch = weights, stats, mode, []

    def __call__(self, x):
        n = len(self._batch)
        scale, shift = self._weights.get(f"scale{n}"), self._weights.get(f"shift{n}")
        y, batch = batch_norm(x, scale, shift, self._stats[n], self._mode)
        self._batch.append(batch)
        return y

    def batch_stats(self) -> Stats:
        return jnp.stack(self._batch) if self._batch else self._stats
