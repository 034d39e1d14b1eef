"""ISTA-NAS network of 5 cells and 8 channels for 10 classes of 32 x 32 x 3 images, in PyTorch.

    from network import load

    model = load()          # with the weights in pytorch_state.npz beside this file
    logits = model(images)  # (B, 3, 32, 32), pixels of 0 ... 255, in any dtype

Needs torch and nothing else. `model.train()` makes it an ordinary module to fine-tune: replace
`model.classifier` for other classes. Images are prepared like this:
RGB, turned as EXIF says; the whole image is resized to 32 x 32 pixels by averaging areas,
whatever its shape.
"""

import ast
import pathlib
import zipfile

import torch
from torch import nn
from torch.nn import functional as F

CLASS_NAMES = (
    'airplane',
    'automobile',
    'bird',
    'cat',
    'deer',
    'dog',
    'frog',
    'horse',
    'ship',
    'truck',
)
MEAN, STD = (0.4913996756076813, 0.48215827345848083, 0.4465312361717224), (0.24703232944011688, 0.24348504841327667, 0.2615876793861389)  # images become (pixels / 255 - mean) / std
# Of each node: the operations that it adds up, each with the state it takes. States 0 and 1 are
# the cell's inputs, node 0 is state 2.
NORMAL = (
    (('sep_conv_5x5', 1), ('skip_connect', 0)),
    (('sep_conv_3x3', 1), ('skip_connect', 0)),
    (('sep_conv_5x5', 0), ('skip_connect', 2)),
    (('sep_conv_5x5', 1), ('dil_conv_5x5', 0)),
)
REDUCTION = (
    (('max_pool_3x3', 1), ('skip_connect', 0)),
    (('max_pool_3x3', 1), ('sep_conv_3x3', 0)),
    (('skip_connect', 1), ('sep_conv_3x3', 0)),
    (('sep_conv_5x5', 1), ('dil_conv_3x3', 0)),
)
NORMAL_OUTPUT, REDUCTION_OUTPUT = (2, 3, 4, 5), (2, 3, 4, 5)  # states put together
# Of each cell: channels, whether it is a reduction, whether its first input is twice as large as
# its second, and the channels of both.
CELLS = [
    (8, False, False, 24, 24),
    (16, True, False, 24, 32),
    (16, False, True, 32, 64),
    (32, True, False, 64, 64),
    (32, False, True, 64, 128),
]


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
OPERATIONS = {
    ('dil_conv_3x3', 2): lambda c: Operation(
        nn.ReLU(),
        nn.Conv2d(c, c, 3, 2, 2, 2, groups=c, bias=False),
        nn.Conv2d(c, c, 1, bias=False),
        nn.BatchNorm2d(c)
    ),
    ('dil_conv_5x5', 1): lambda c: Operation(
        nn.ReLU(),
        nn.Conv2d(c, c, 5, 1, 4, 2, groups=c, bias=False),
        nn.Conv2d(c, c, 1, bias=False),
        nn.BatchNorm2d(c)
    ),
    ('max_pool_3x3', 2): lambda c: nn.Sequential(
        nn.MaxPool2d(3, 2, padding=1)
    ),
    ('sep_conv_3x3', 1): lambda c: Operation(
        nn.ReLU(),
        nn.Conv2d(c, c, 3, 1, 1, 1, groups=c, bias=False),
        nn.Conv2d(c, c, 1, bias=False),
        nn.BatchNorm2d(c),
        nn.ReLU(),
        nn.Conv2d(c, c, 3, 1, 1, 1, groups=c, bias=False),
        nn.Conv2d(c, c, 1, bias=False),
        nn.BatchNorm2d(c)
    ),
    ('sep_conv_3x3', 2): lambda c: Operation(
        nn.ReLU(),
        nn.Conv2d(c, c, 3, 2, 1, 1, groups=c, bias=False),
        nn.Conv2d(c, c, 1, bias=False),
        nn.BatchNorm2d(c),
        nn.ReLU(),
        nn.Conv2d(c, c, 3, 1, 1, 1, groups=c, bias=False),
        nn.Conv2d(c, c, 1, bias=False),
        nn.BatchNorm2d(c)
    ),
    ('sep_conv_5x5', 1): lambda c: Operation(
        nn.ReLU(),
        nn.Conv2d(c, c, 5, 1, 2, 1, groups=c, bias=False),
        nn.Conv2d(c, c, 1, bias=False),
        nn.BatchNorm2d(c),
        nn.ReLU(),
        nn.Conv2d(c, c, 5, 1, 2, 1, groups=c, bias=False),
        nn.Conv2d(c, c, 1, bias=False),
        nn.BatchNorm2d(c)
    ),
    ('sep_conv_5x5', 2): lambda c: Operation(
        nn.ReLU(),
        nn.Conv2d(c, c, 5, 2, 2, 1, groups=c, bias=False),
        nn.Conv2d(c, c, 1, bias=False),
        nn.BatchNorm2d(c),
        nn.ReLU(),
        nn.Conv2d(c, c, 5, 1, 2, 1, groups=c, bias=False),
        nn.Conv2d(c, c, 1, bias=False),
        nn.BatchNorm2d(c)
    ),
    ('skip_connect', 1): lambda c: nn.Sequential(
        nn.Identity()
    ),
    ('skip_connect', 2): lambda c: Halving(c, c, affine=True),
}


def preprocess(channels_in, channels, halve):
    """Bring an input to a cell's channels and size."""
    if halve:
        return Halving(channels_in, channels, affine=True)
    return Operation(
        nn.ReLU(),
        nn.Conv2d(channels_in, channels, 1, bias=False),
        nn.BatchNorm2d(channels)
    )


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
        self.stem = nn.Sequential(nn.Conv2d(3, 24, (3, 3), (1, 1), (1, 1), bias=False), nn.BatchNorm2d(24))
        self.cells = nn.ModuleList(Cell(*cell) for cell in CELLS)
        self.classifier = nn.Linear(128, len(CLASS_NAMES))

    def forward(self, images):
        x = (images.float() / 255 - self.mean) / self.std
        s0 = s1 = self.stem(x)
        for cell in self.cells:
            s0, s1 = s1, cell(s0, s1)
        return self.classifier(s1.mean((2, 3)))


def load(file=pathlib.Path(__file__).with_name("pytorch_state.npz")):
    """The trained network, in evaluation."""
    model = Network()
    model.load_state_dict(read_arrays(file))
    return model.eval()


def read_arrays(file):
    """Read the float32 arrays of an .npz file, which is a zip of .npy files."""
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            begin = 10 + int.from_bytes(content[8:10], "little")
            shape = ast.literal_eval(content[10:begin].decode())["shape"]
            values = torch.frombuffer(bytearray(content[begin:]), dtype=torch.float32)
            arrays[name.removesuffix(".npy")] = values.reshape(shape)
    return arrays
