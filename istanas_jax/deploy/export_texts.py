"""What an export says about itself: its README.md, the names in its files, and a table."""

from istanas_jax.deploy.exported import LOADS_FOR, MODEL, ONNX, PYTORCH
from istanas_jax.deploy.onnx_model import NEEDS
from istanas_jax.runs.trained_network import Trained

NAMING = {
    "params/stem/...": "from the image to the inputs of the first cell",
    "params/cell_CC/preI/...": "what brings input I of cell CC to the cell's channels",
    "params/cell_CC/nodeJ_connectionK/...": "operation K of node J, in the genotype's order; one "
    "without weights has no entry",
    "params/classifier/linear/kernel, bias": "(in, classes) and (classes,)",
    ".../convN": "convolution kernel (h, w, in, out)",
    ".../depthwiseN": "depthwise kernel (h, w, C), before pointwiseN",
    ".../pointwiseN": "1x1 kernel (in, out)",
    ".../even, odd": "the 1x1 kernels (in, out / 2) of a factorised reduction",
    ".../scaleN, shiftN": "of batch norm N, (C,); without them 1 and 0",
    "batch_stats/.../stats": "running mean and variance of the module's batch norms, "
    "(norms, 2, C): y = scale * (x - mean) / sqrt(variance + 1e-5) + shift",
    "batch_stats/stem/statsN": "the same for the stem's batch norm N, (1, 2, C)",
}
NAMING_FOLDED = {
    ".../biasN": "(C,): batch norm N is folded into the kernel before it and this bias, and has "
    "no other entry",
}

README = """\
# {title}

Written by istanas_jax {version} with jax {jax}. Sizes, class names and normalisation are in
`network.json`, the cells in `genotype.json`.

images: uint8 (B, {size}, {size}, {channels}) for any B, pixels of 0 ... 255, normalised inside;
logits: float32 (B, {classes}). The network was tested on images prepared like this:
{preparation}. `python -m istanas_jax predict` does so. `network.json` has the sha256 of every file.

## `model.stablehlo`: everything inside, runs with jax and flatbuffers alone

    import pathlib, jax.export
    model = jax.export.deserialize(bytearray(pathlib.Path("model.stablehlo").read_bytes()))
    logits = model.call(images)

On cpu, cuda and tpu. The file is a program: loading and calling it runs what it holds, so use it
only if you trust where it comes from. jax promises to load it for {months} months after the release
of the version that wrote it; to keep a network for longer, keep the weights or the run's folder.
{onnx}
{pytorch}
## `weights.safetensors`: the arrays by name

    weights = safetensors.numpy.load_file("weights.safetensors")

`network.json` explains the names under `naming`.{folded}
{release}"""
README_PYTORCH = """
## `network.py`: a PyTorch module, needs torch alone

    from network import load
    logits = load()(images)  # images: (B, {channels}, {size}, {size})

It reads its weights from `pytorch_state.npz`. It is a program too.
"""
README_RELEASE = """
## `pytorch_state.npz`: the state dict of the authors' PyTorch release

    state = {k: torch.from_numpy(v) for k, v in numpy.load("pytorch_state.npz").items()}
    model.load_state_dict(state)  # the release's model of this genotype, without an auxiliary head
    model.eval()

Images are (B, C, H, W) there, normalised as `network.json` says.
"""
README_ONNX = """
## `model.onnx`: for onnxruntime and other runtimes, opset {opset}

    import onnxruntime
    logits, = onnxruntime.InferenceSession("model.onnx").run(None, {{"images": images}})
"""


def readme(trained: Trained, about: dict) -> str:
    """README.md of an export."""
    folded = (
        "\nBatch norms are folded into the convolutions before them." if about["folded"] else ""
    )
    opset = about["onnx_opset"]
    shape = {"size": trained.image_size, "channels": trained.net.image_channels}
    for_torch = "left_out" not in about
    return README.format(
        title=about["description"],
        version=about["version"],
        jax=about["jax"],
        **shape,
        pytorch=README_PYTORCH.format(**shape) if for_torch else "",
        release=README_RELEASE if for_torch else "",
        classes=trained.net.classes,
        folded=folded,
        months=LOADS_FOR,
        onnx="" if opset is None else README_ONNX.format(opset=opset),
        preparation=about["preparation_in_words"],
    )


def table(results: dict) -> str:
    """Format what `export` wrote as text for people."""
    rows, files = [], results["files"]
    for name, file in files.items():
        difference = file.get("largest_difference")
        said = (
            "" if difference is None else f"  reads back, logits differ by at most {difference:.1e}"
        )
        if name == PYTORCH and difference is None:
            said = "  not run: torch is not installed here"
        rows.append(f"{name:<22}{file['bytes']:>12,} bytes{said}")
    left_out = results.get("left_out", ())
    rows += [f"{name:<22}not written: the network has layers of its own" for name in left_out]
    if ONNX not in files and not left_out:
        rows.append(f"{ONNX:<22}not written: it needs {NEEDS}")
    return "\n".join(
        [
            f"{results['description']}, in {results['out']}",
            "",
            *rows,
            "",
            f"compared on {results['compared_images']} random images, largest logit "
            f"{results['largest_logit']:.3g}",
            f"{MODEL} is a program: whoever loads it must trust where it comes from",
            f"jax promises to load {MODEL} for {LOADS_FOR} months after the release of jax "
            f"{results['jax']}, which wrote it",
        ]
    )
