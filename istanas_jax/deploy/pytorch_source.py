"""A trained network as a plain PyTorch module: the text of network.py, written for one genotype.

The module needs torch and no other package, and calls its weights as the authors' release does, so
it loads the export's pytorch_state.npz.
"""

import textwrap
from importlib import util
from types import ModuleType

import numpy as np
from jaxtyping import Float, UInt8

from istanas_jax.deploy.release_names import FORM
from istanas_jax.networks import operations
from istanas_jax.networks.stem_and_heads import stem_layers
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.runs.trained_network import Trained
from istanas_jax.space import layers
from istanas_jax.space.connections import stride_of
from istanas_jax.space.layers import Layer, Layers
from istanas_jax.space.operations import find_operation

INDENT = 8 * " "
HALVING = (layers.Relu, layers.FactorisedReduction, layers.Norm)

SOURCE = '''\
"""{title}, in PyTorch.

    from network import load

    model = load()          # with the weights in {state} beside this file
    logits = model(images)  # (B, {channels}, {size}, {size}), pixels of 0 ... 255, in any dtype

Needs torch and nothing else. `model.train()` makes it an ordinary module to fine-tune: replace
`model.classifier` for other classes. Images are prepared like this:
{preparation}.
"""

import ast
import pathlib
import zipfile

import torch
from torch import nn
from torch.nn import functional as F

CLASS_NAMES = {class_names}
MEAN, STD = {mean}, {std}  # images become (pixels / 255 - mean) / std
# Of each node: the operations that it adds up, each with the state it takes. States 0 and 1 are
# the cell's inputs, node 0 is state 2.
NORMAL = {normal}
REDUCTION = {reduction}
NORMAL_OUTPUT, REDUCTION_OUTPUT = {normal_concat}, {reduction_concat}  # states put together
# Of each cell: channels, whether it is a reduction, whether its first input is twice as large as
# its second, and the channels of both.
CELLS = {cells}


class Operation(nn.Module):
    """Layers one after the other."""

    def __init__(self, *layers):
        super().__init__()
        self.op = nn.Sequential(*layers)

    def forward(self, x):
        return self.op(x)


class Halving(nn.Module):
    """Stride 2: half of the channels from even pixels, half from odd ones."""

    def __init__(self, channels_in, channels, affine):
        super().__init__()
        self.conv_1 = nn.Conv2d(channels_in, channels // 2, 1, stride=2, bias=False)
        self.conv_2 = nn.Conv2d(channels_in, channels // 2, 1, stride=2, bias=False)
        self.bn = nn.BatchNorm2d(channels, affine=affine)

    def forward(self, x):
        x = F.relu(x)
        later = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        return self.bn(torch.cat([self.conv_1(x), self.conv_2(later)], 1))


# Operations by name and stride; c: number of channels.
OPERATIONS = {{
{operations}
}}


def preprocess(channels_in, channels, halve):
    """Bring an input to a cell's channels and size."""
    if halve:
        return {halve}
    return {pointwise}


class Cell(nn.Module):
    def __init__(self, channels, reduction, halve, in0, in1):
        super().__init__()
        self.preprocess0 = preprocess(in0, channels, halve)
        self.preprocess1 = preprocess(in1, channels, False)
        self.nodes = REDUCTION if reduction else NORMAL
        self.output = REDUCTION_OUTPUT if reduction else NORMAL_OUTPUT
        picks = [pick for node in self.nodes for pick in node]
        # In a reduction cell what reads an input has stride 2.
        strides = [2 if reduction and state < 2 else 1 for _, state in picks]
        self._ops = nn.ModuleList(
            OPERATIONS[op, stride](channels) for (op, _), stride in zip(picks, strides)
        )

    def forward(self, s0, s1):
        states, ops = [self.preprocess0(s0), self.preprocess1(s1)], iter(self._ops)
        for node in self.nodes:
            states.append(sum(next(ops)(states[state]) for _, state in node))
        return torch.cat([states[i] for i in self.output], 1)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        for name, values in (("mean", MEAN), ("std", STD)):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)
{stem}
        self.cells = nn.ModuleList(Cell(*cell) for cell in CELLS)
        self.classifier = nn.Linear({features}, len(CLASS_NAMES))

    def forward(self, images):
        x = (images.float() / 255 - self.mean) / self.std
{inputs}
        for cell in self.cells:
            s0, s1 = s1, cell(s0, s1)
        return self.classifier(s1.mean((2, 3)))


def load(file=pathlib.Path(__file__).with_name("{state}")):
    """The trained network, in evaluation."""
    model = Network()
    model.load_state_dict(read_arrays(file))
    return model.eval()


def read_arrays(file):
    """Read the float32 arrays of an .npz file, which is a zip of .npy files."""
    arrays = {{}}
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            begin = 10 + int.from_bytes(content[8:10], "little")
            shape = ast.literal_eval(content[10:begin].decode())["shape"]
            values = torch.frombuffer(bytearray(content[begin:]), dtype=torch.float32)
            arrays[name.removesuffix(".npy")] = values.reshape(shape)
    return arrays
'''


def installed() -> bool:
    return util.find_spec("torch") is not None


def pytorch_source(trained: Trained, title: str, state: str) -> str:
    """The text of network.py; `state` is the name of the file with its weights."""
    net, g = trained.net, trained.net.genotype
    regime = operations.REGIMES[net.regime]
    stem, inputs = _stem(net)
    plans = net.plans()
    concat = g.reduce_concat if plans[-1].reduction else g.normal_concat
    return SOURCE.format(
        title=title,
        state=state,
        size=trained.image_size,
        channels=net.image_channels,
        preparation=textwrap.fill(trained.preparation.in_words(), 90),
        class_names=_rows(map(repr, trained.class_names), "("),
        mean=tuple(trained.mean),
        std=tuple(trained.std),
        normal=_rows(_nodes(g.normal), "("),
        reduction=_rows(_nodes(g.reduce), "("),
        normal_concat=tuple(g.normal_concat),
        reduction_concat=tuple(g.reduce_concat),
        cells=_rows((str(tuple(plan)) for plan in plans), "["),
        operations="\n".join(_operations(net)),
        halve=_preprocess(regime.affine, halve=True),
        pointwise=_preprocess(regime.affine, halve=False),
        stem="\n".join(stem),
        inputs="\n".join(inputs),
        features=len(concat) * plans[-1].channels,
    )


def run_pytorch(source: bytes, state: str, images: UInt8[np.ndarray, "B H W C"]):
    """The logits that network.py computes from the state in this file, on the CPU."""
    return classifier(source, state)(images)


def classifier(source: bytes, state: str):
    """The function from images (B, H, W, C) to logits that network.py makes."""
    import torch

    module = ModuleType("network")
    module.__file__ = state
    exec(compile(source, "network.py", "exec"), module.__dict__)
    model = module.load(state)

    def classify(images: UInt8[np.ndarray, "B H W C"]) -> Float[np.ndarray, "B classes"]:
        with torch.inference_mode():
            return model(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()

    return classify


def _rows(items, bracket: str) -> str:
    close = {"(": ")", "[": "]"}[bracket]
    return bracket + "".join(f"\n    {item}," for item in items) + f"\n{close}"


def _nodes(cell) -> list[str]:
    return [str(tuple((op, int(state)) for op, state in node)) for node in cell]


def _stem(net: TargetNet) -> tuple[list[str], list[str]]:
    """The lines that make the stem, and those that compute the first cell's inputs."""
    first, second = stem_layers(net.stem, net.channels)
    made = _sequence(first, str(net.image_channels), True)
    if not second:
        lines = [f"{INDENT}self.stem = nn.Sequential({made})"]
        return lines, [f"{INDENT}s0 = s1 = self.stem(x)"]
    then = _sequence(second, str(net.channels), True)
    lines = [f"{INDENT}self.stem{n} = nn.Sequential({text})" for n, text in enumerate((made, then))]
    return lines, [f"{INDENT}s0 = self.stem0(x)", f"{INDENT}s1 = self.stem1(s0)"]


def _operations(net: TargetNet) -> list[str]:
    """A line for each operation at each stride that the network has it."""
    regime, found = operations.REGIMES[net.regime], {}
    reductions = {plan.reduction for plan in net.plans()}
    for reduction in sorted(reductions):
        for node in net.genotype.reduce if reduction else net.genotype.normal:
            for op, predecessor in node:
                found[op, stride_of(predecessor, reduction)] = find_operation(op)
    lines = []
    for (op, stride), record in sorted(found.items()):
        made = _module(record.layers_in(stride, regime), "c", regime.affine, record.release)
        lines.append(f"    ({op!r}, {stride}): lambda c: {made},")
    return lines


def _preprocess(affine: bool, *, halve: bool) -> str:
    """The module that `preprocess` makes; its channels are names there, not numbers."""
    return _module(operations.preprocess_layers("channels", halve), "channels_in", affine, FORM)


def _module(sequence: Layers, channels: str, affine: bool, form: str) -> str:
    """The module of these layers, whose weights are called as the release calls them."""
    if any(isinstance(layer, layers.FactorisedReduction) for layer in sequence):
        if tuple(map(type, sequence)) != HALVING:
            raise TypeError("a factorised reduction stands between a ReLU and a batch norm")
        return f"Halving({channels}, {sequence[1].channels_out(channels)}, affine={affine})"
    container = {FORM: "Operation", "{}": "nn.Sequential"}[form]
    inside = _sequence(sequence, channels, affine).replace("), nn.", f"),\n{INDENT}nn.")
    return f"{container}(\n{INDENT}{inside}\n{INDENT[4:]})"


def _sequence(sequence: Layers, channels: str, affine: bool) -> str:
    texts = []
    for layer in sequence:
        texts.append(layer_text(layer, channels, affine))
        channels = str(layer.channels_out(channels))
    return ", ".join(texts)


def layer_text(layer: Layer, channels: str, affine: bool) -> str:
    """The torch module of a layer whose input has these channels, a number or a name."""
    out = layer.channels_out(channels)
    match layer:
        case layers.Identity():
            return "nn.Identity()"
        case layers.Relu():
            return "nn.ReLU()"
        case layers.Norm():
            return f"nn.BatchNorm2d({channels}{'' if affine else ', affine=False'})"
        case layers.MaxPool(stride=stride, window=window):
            return f"nn.MaxPool2d({window}, {stride}, padding={window // 2})"
        case layers.AvgPool(stride=stride, window=window):
            inside = f"padding={window // 2}, count_include_pad=False"
            return f"nn.AvgPool2d({window}, {stride}, {inside})"
        case layers.Depthwise(stride=stride, kernel=kernel, dilation=dilation):
            padding = dilation * (kernel - 1) // 2
            sizes = f"{kernel}, {stride}, {padding}, {dilation}, groups={channels}, bias=False"
            return f"nn.Conv2d({channels}, {channels}, {sizes})"
        case layers.Pointwise():
            return f"nn.Conv2d({channels}, {out}, 1, bias=False)"
        case layers.Conv(kernel=kernel, strides=strides):
            padding = tuple((k - 1) // 2 for k in kernel)
            return f"nn.Conv2d({channels}, {out}, {kernel}, {strides}, {padding}, bias=False)"
        case layers.Zero(stride=stride):  # what is not above infinity becomes 0
            return f"nn.MaxPool2d(1, {stride}), nn.Threshold(float('inf'), 0.0)"
        case other:
            raise TypeError(f"{other} cannot be written for PyTorch")
