"""Operations of one's own, for a search that a config asks to have them: see docs/spaces.md."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from istanas_jax.networks.kernels import depthwise_conv
from istanas_jax.networks.operations import pointwise
from istanas_jax.space.layers import Conv, Depthwise, Layer, Norm, Pointwise, Relu
from istanas_jax.space.operations import Operation


@dataclass(frozen=True)
class SqueezeAndExcite(Layer):
    """Every channel times a number between 0 and 1, which depends on the means of all channels."""

    reduction: int = 4

    def kernels(self, channels: int):
        few = max(1, channels // self.reduction)
        return {"squeeze": (channels, few), "excite": (few, channels)}

    def apply(self, x, squeeze, excite):
        means = jnp.mean(x, (1, 2), keepdims=True)
        return x * jax.nn.sigmoid(pointwise(jax.nn.relu(pointwise(means, squeeze)), excite))


@dataclass(frozen=True)
class InvertedBottleneck(Layer):
    """More channels, a depthwise convolution, and as many channels as before."""

    stride: int = 1
    expansion: int = 4

    def kernels(self, channels: int):
        wide = self.expansion * channels
        return {"expand": (channels, wide), "depthwise": (3, 3, wide), "project": (wide, channels)}

    def size_out(self, size):
        height, width = (-(-n // self.stride) for n in size)
        return height, width

    def apply(self, x, expand, depthwise, project):
        x = jax.nn.relu6(pointwise(x, expand))
        x = jax.nn.relu6(depthwise_conv(x, depthwise, stride=self.stride, dilation=1))
        return pointwise(x, project)

    def multiply_adds(self, channels: int, size):
        wide, (height, width) = self.expansion * channels, self.size_out(size)
        return wide * channels * size[0] * size[1] + wide * (9 + channels) * height * width


CONV = Operation(
    "conv_3x3", lambda stride: (Relu(), Conv(strides=(stride, stride)), Norm()), "purple"
)
SQUEEZE = Operation(
    "squeeze",
    lambda stride: (Relu(), Depthwise(stride), Pointwise(), Norm(), SqueezeAndExcite()),
    "orange",
)
BOTTLENECK = Operation(
    "bottleneck", lambda stride: (InvertedBottleneck(stride), Norm()), "vermilion"
)
