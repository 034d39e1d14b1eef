"""A trained network as an ONNX graph, written layer by layer; needs the extra `onnx`.

The layers of `space.layers` become one ONNX node each, batch norms folded into convolutions where
they follow one. Images come in as (B, H, W, C), as in model.stablehlo; inside they are
(B, C, H, W), the only order ONNX convolves in.
"""

from collections.abc import Iterable
from importlib import util
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Array, Float, UInt8

from istanas_jax.deploy.exported import ONNX, ExportError
from istanas_jax.deploy.folding import fold_batch_norms
from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import EPSILON
from istanas_jax.networks.cells import CellPlan, operation_name
from istanas_jax.networks.stem_and_heads import stem_steps
from istanas_jax.networks.target_net import TargetNet, cell_name
from istanas_jax.runs.trained_network import Trained
from istanas_jax.space import layers
from istanas_jax.space.connections import stride_of
from istanas_jax.space.layers import Step
from istanas_jax.space.operations import find_operation

OPSET = 17  # onnxruntime reads it since 1.12
OPSETS = range(13, 25)  # each of them gives the network's logits here by onnxruntime
NEEDS = "the packages onnx and onnxruntime: pip install 'istanas-jax[onnx]'"


def installed() -> bool:
    """Whether graphs can be written and run here."""
    return all(util.find_spec(name) for name in ("onnx", "onnxruntime"))


def check_opset(opset: int | None) -> None:
    """Raise an ExportError if the opset is asked for and cannot be written."""
    if opset is None:
        return
    if not installed():
        raise ExportError(f"--opset {opset} is for {ONNX}, which needs {NEEDS}")
    if opset not in OPSETS:
        raise ExportError(f"opset {opset} is not supported: choose {OPSETS[0]} to {OPSETS[-1]}")


def onnx_model(trained: Trained, opset: int = OPSET) -> bytes:
    """The network as an ONNX file: uint8 `images` of any number to float32 `logits`."""
    import onnx

    size, channels = trained.image_size, trained.net.image_channels
    graph = _Graph(fold_batch_norms(trained.variables, trained.net))
    logits = graph.network(trained.net, graph.normalised("images", trained.mean, trained.std))
    kinds, value = onnx.TensorProto, onnx.helper.make_tensor_value_info
    description = onnx.helper.make_graph(
        graph.nodes,
        "network",
        [value("images", kinds.UINT8, ["batch", size, size, channels])],
        [value(logits, kinds.FLOAT, ["batch", trained.net.classes])],
        graph.constants,
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(
        description,
        opset_imports=opsets,
        ir_version=onnx.helper.find_min_ir_version_for(opsets),
        producer_name="istanas_jax",
    )
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def session(content: bytes, threads: int = 0) -> Any:
    """Open an ONNX file with onnxruntime on the CPU; threads: 0 lets it choose."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run_onnx(content: bytes, images: UInt8[np.ndarray, "B H W C"]) -> Float[np.ndarray, "B K"]:
    """The logits that onnxruntime computes on this machine's CPU."""
    return session(content).run(None, {"images": images})[0]


class _Graph:
    """Nodes and constants of a graph; its methods add to them and return the name of an output."""

    def __init__(self, folded: dict):
        self.params, self.stats = folded["params"], folded["batch_stats"]
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, kind: str, *inputs: str, output: str = "", **attributes) -> str:
        from onnx import helper

        output = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def constant(self, array: Array, dtype=np.float32) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        content = np.ascontiguousarray(np.asarray(array, dtype))
        self.constants.append(numpy_helper.from_array(content, name))
        return name

    def normalised(self, images: str, mean: Iterable[float], std: Iterable[float]) -> str:
        """(pixels / 255 - mean) / std, channels first."""
        mean, std = (255 * np.array(values, np.float64) for values in (mean, std))
        pixels = self.node("Cast", images, to=1)  # float32
        centred = self.node("Sub", pixels, self.constant(mean))
        scaled = self.node("Mul", centred, self.constant(1 / std))
        return self.node("Transpose", scaled, perm=(0, 3, 1, 2))

    def network(self, net: TargetNet, x: str) -> str:
        first, second = stem_steps(net.stem, net.channels, net.image_channels)
        s0 = self.layers(first, x, "stem")
        s1 = self.layers(second, s0, "stem")
        for index, plan in enumerate(net.plans()):
            s0, s1 = s1, self.cell(net, plan, cell_name(index), s0, s1)
        linear = self.params["classifier"]["linear"]
        features = self.node("Flatten", self.node("GlobalAveragePool", s1))
        weights = (self.constant(linear[name]) for name in ("kernel", "bias"))
        return self.node("Gemm", features, *weights, output="logits")

    def cell(self, net: TargetNet, plan: CellPlan, name: str, s0: str, s1: str) -> str:
        g, regime = net.genotype, operations.REGIMES[net.regime]
        nodes, concat = (
            (g.reduce, g.reduce_concat) if plan.reduction else (g.normal, g.normal_concat)
        )
        states = []
        for n, (x, channels) in enumerate(((s0, plan.in0), (s1, plan.in1))):
            sequence = operations.preprocess_layers(plan.channels, n == 0 and plan.halve)
            states.append(self.layers(layers.steps(sequence, channels), x, name, f"pre{n}"))
        for j, node in enumerate(nodes):
            found = []
            for k, (op, predecessor) in enumerate(node):
                stride = stride_of(predecessor, plan.reduction)
                sequence = find_operation(op).layers_in(stride, regime)
                numbered = layers.steps(sequence, plan.channels)
                found.append(self.layers(numbered, states[predecessor], name, operation_name(j, k)))
            total = found[0]
            for other in found[1:]:
                total = self.node("Add", total, other)
            states.append(total)
        return self.node("Concat", *(states[i] for i in concat), axis=1)

    def layers(self, sequence: Iterable[Step], x: str, *path: str) -> str:
        """Add the layers of a module; a bias in place of a batch norm goes to the layer before."""
        weights, stats = self._module(self.params, path), self._module(self.stats, path)
        for step, after in pairwise([*sequence, None]):
            norm = None if after is None else after.norm
            bias = None if norm is None else weights.get(f"bias{norm}")
            x = self.layer(step, x, weights, stats, bias)
        return x

    @staticmethod
    def _module(tree: dict, path: Iterable[str]) -> dict:
        for name in path:
            tree = tree.get(name, {})
        return tree

    def layer(self, step: Step, x: str, weights: dict, stats: dict, bias) -> str:
        kernels = [np.asarray(weights[name]) for name in step.kernels]
        match step.layer:
            case layers.Identity():
                return x
            case layers.Relu():
                return self.node("Relu", x)
            case layers.Norm():
                return x if f"bias{step.norm}" in weights else self.norm(step, x, weights, stats)
            case layers.MaxPool(stride=stride, window=window):
                return self.node("MaxPool", x, **_window((window, window), (stride, stride)))
            case layers.AvgPool(stride=stride, window=window, padded=padded):
                sizes = _window((window, window), (stride, stride), padded=padded)
                return self.node("AveragePool", x, count_include_pad=0, **sizes)
            case layers.Depthwise(stride=stride, dilation=dilation):
                kernel = kernels[0].transpose(2, 0, 1)[:, None]
                return self.conv(x, kernel, bias, (stride, stride), dilation, group=len(kernel))
            case layers.Pointwise():
                return self.conv(x, kernels[0].T[..., None, None], bias)
            case layers.Conv(strides=strides):
                return self.conv(x, kernels[0].transpose(3, 2, 0, 1), bias, strides)
            case layers.FactorisedReduction():
                return self.halve(x, *kernels, bias)
            case layers.Zero(stride=stride):
                part = self.node("MaxPool", x, **_window((1, 1), (stride, stride)))
                return self.node("Mul", part, self.constant(np.zeros(1), np.float32))
            case other:
                raise TypeError(f"{other} cannot be written as ONNX")

    def conv(self, x: str, kernel, bias, strides=(1, 1), dilation: int = 1, group: int = 1) -> str:
        inputs = [self.constant(v) for v in (kernel, bias) if v is not None]
        sizes = _window(kernel.shape[2:], strides, dilation)
        return self.node("Conv", x, *inputs, group=group, dilations=(dilation,) * 2, **sizes)

    def halve(self, x: str, even, odd, bias) -> str:
        """Half of the channels from even pixels, half from odd ones, 0 where there are none."""
        biases = (None, None) if bias is None else np.split(np.asarray(bias), 2)
        padded = self.node("Pad", x, self.constant([0, 0, 0, 0, 0, 0, 1, 1], np.int64))
        begin, end, axes = ([1, 1], [2**31 - 1] * 2, [2, 3])
        limits = (self.constant(values, np.int64) for values in (begin, end, axes))
        later = self.node("Slice", padded, *limits)
        parts = zip((x, later), (even, odd), biases, strict=True)
        halves = [self.conv(v, w.T[..., None, None], b, (2, 2)) for v, w, b in parts]
        return self.node("Concat", *halves, axis=1)

    def norm(self, step: Step, x: str, weights: dict, stats: dict) -> str:
        """A batch norm that follows no convolution."""
        mean, variance = np.asarray(stats["stats"])[step.norm]
        scale, shift = operations.scale_and_shift(weights, step.norm)
        scale = np.ones_like(mean) if scale is None else scale
        shift = np.zeros_like(mean) if shift is None else shift
        moments = map(self.constant, (scale, shift, mean, variance))
        return self.node("BatchNormalization", x, *moments, epsilon=EPSILON)


def _window(kernel, strides, dilation: int = 1, *, padded: bool = True) -> dict[str, Any]:
    """ONNX's sizes of a window, padded by half of it on each side."""
    half = [dilation * (k - 1) // 2 if padded else 0 for k in kernel]
    return {"kernel_shape": kernel, "strides": strides, "pads": half + half}
