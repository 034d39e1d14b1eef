"""The operations in eager PyTorch, channels_last: the yardstick, where torch is installed."""

import jax

from istanas_jax.deploy.pytorch_source import installed, layer_text
from istanas_jax.devices.timing import fastest
from istanas_jax.networks.operation_times import OperationShape
from istanas_jax.space.layers import FactorisedReduction, Layers, Noise, NormRegime
from istanas_jax.space.operations import find_operation


def why_not() -> str:
    """Why there is no comparison, in a sentence; empty if there is one."""
    if not installed():
        return "there is no comparison with PyTorch: torch is not installed"
    if jax.default_backend() != "cpu":
        return "there is no comparison with PyTorch: it is made on CPUs only"
    return ""


def has(op: str, stride: int) -> bool:
    """Whether PyTorch has the operation: not noise, nor layers of a file of one's own."""
    layers = find_operation(op).layers(stride)
    return not any(isinstance(layer, Noise) or hasattr(layer, "apply") for layer in layers)


def version() -> str:
    import torch

    return f"torch {torch.__version__}"


def measure(
    op: str,
    shape: OperationShape,
    *,
    regime: NormRegime,
    batch: int,
    dtype: str,
    seconds: float | None,
) -> dict:
    """Milliseconds of the operation in PyTorch, forward and with its backward pass."""
    import torch

    layers = find_operation(op).layers_in(shape.stride, regime)
    module = module_of(layers, shape.channels, regime.affine)
    module = module.to(dtype=getattr(torch, dtype), memory_format=torch.channels_last)
    channels, size, _ = shape

    def random(size: int):
        x = torch.randn(batch, channels, size, size, dtype=getattr(torch, dtype))
        return x.contiguous(memory_format=torch.channels_last)

    x, gradient = random(size).requires_grad_(), random(shape.out)

    def forward():
        with torch.no_grad():
            module(x)

    def both():
        x.grad = None
        module.zero_grad()
        module(x).backward(gradient)

    times = {"forward": fastest(forward, seconds=seconds), "both": fastest(both, seconds=seconds)}
    return {f"torch_{way}_ms": round(1000 * time, 4) for way, time in times.items()}


def module_of(sequence: Layers, channels: int, affine: bool):
    """The module of an operation's layers."""
    from torch import nn

    made = []
    for layer in sequence:
        if isinstance(layer, FactorisedReduction):
            made.append(_halving(channels))
        else:
            made += eval(f"[{layer_text(layer, str(channels), affine)}]", {"nn": nn})
        channels = layer.channels_out(channels)
    return nn.Sequential(*made)


def _halving(channels: int):
    """Half of the channels from even pixels, half from odd ones, as the release computes it."""
    import torch
    from torch import nn

    class Halving(nn.Module):
        def __init__(self):
            super().__init__()
            self.even = nn.Conv2d(channels, channels // 2, 1, stride=2, bias=False)
            self.odd = nn.Conv2d(channels, channels // 2, 1, stride=2, bias=False)

        def forward(self, x):
            later = nn.functional.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
            return torch.cat([self.even(x), self.odd(later)], 1)

    return Halving()
