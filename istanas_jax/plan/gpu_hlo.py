"""What the text of a program compiled for GPUs tells about a run of it.

XLA has no estimate of its time. What can be read is which kernels are launched, what they read from
and write to memory, and how often images change their layout.
"""

import re
from math import prod
from typing import NamedTuple

from istanas_jax.plan.hlo import add_up, computations

# What launches no kernel: names for what is there already, and what only calls other computations.
FREE = {
    "parameter",
    "constant",
    "bitcast",
    "get-tuple-element",
    "tuple",
    "while",
    "conditional",
    "call",
    "after-all",
    "partition-id",
    "replica-id",
    "opt-barrier",
}
IMAGE_NUMBERS = 65_536  # an array of four axes and so many numbers holds images, not weights


class Instruction(NamedTuple):
    """One line of a program."""

    name: str
    result: str  # types, shapes and layouts
    op: str
    operands: tuple[str, ...]
    calls: str | None  # the computation that a fusion runs
    root: bool


class GpuProgram:
    """A compiled program, read once."""

    def __init__(self, hlo: str):
        self.hlo = hlo
        self.inside = {
            name: [found for line in lines if (found := read(line))]
            for name, lines in computations(hlo).items()
        }
        self.by_name = {one.name: one for lines in self.inside.values() for one in lines}

    def kernels(self) -> float:
        """Kernels that a run launches, library calls among them."""
        return add_up(self.hlo, lambda line: self._launched(line) is not None)

    def transposes(self) -> float:
        """Kernels of a run that change the layout of images."""

        def measure(line: str) -> bool:
            one = self._launched(line)
            return one is not None and any(map(self._turns_images, self._parts(one)))

        return add_up(self.hlo, measure)

    def moved_bytes(self) -> float:
        """Bytes that the kernels of a run read and write, if nothing stays in a cache."""

        def measure(line: str) -> float:
            one = self._launched(line)
            return self._traffic(one) if one else 0

        return add_up(self.hlo, measure)

    def _launched(self, line: str) -> Instruction | None:
        one = read(line)
        return one if one and one.op not in FREE and not one.op.endswith("-done") else None

    def _parts(self, one: Instruction) -> list[Instruction]:
        return self.inside.get(one.calls, [one])

    def _turns_images(self, one: Instruction) -> bool:
        shape = _shapes(one.result)
        if not shape or len(shape[0][1]) < 4 or prod(shape[0][1]) < IMAGE_NUMBERS:
            return False
        if one.op == "transpose":
            return True
        source = self.by_name.get(one.operands[0]) if one.operands else None
        return one.op == "copy" and source is not None and _layout(one) != _layout(source)

    def _traffic(self, one: Instruction) -> float:
        """Of a slice that a kernel reads, or updates in place, only the slice counts."""
        parts = self.inside.get(one.calls, [])
        updates = {p.name: p for p in parts if p.op == "dynamic-update-slice"}
        if one.op == "dynamic-update-slice":
            return 2 * self._bytes(one.operands[1])
        written = size_of(one.result)
        for update in updates.values():
            written += self._bytes(update.operands[1]) - size_of(update.result)
        return max(written, 0) + sum(
            self._read_by(one, number, parts) for number in range(len(one.operands))
        )

    def _read_by(self, one: Instruction, number: int, parts: list[Instruction]) -> float:
        whole = self._bytes(one.operands[number])
        parameter = [p.name for p in parts if p.op == "parameter" and p.operands == (str(number),)]
        if not parameter:
            return whole
        names, total = set(parameter), 0.0
        for part in parts:  # in the order of use
            used = names & set(part.operands)
            if not used:
                continue
            if part.op == "bitcast":
                names.add(part.name)
            elif part.op in ("dynamic-slice", "slice"):
                total += size_of(part.result)
            elif part.op == "dynamic-update-slice" and part.operands[0] in used:
                continue  # updated in place
            else:
                return whole
        return min(total, whole)

    def _bytes(self, name: str) -> int:
        return size_of(self.by_name[name].result) if name in self.by_name else 0


def read(line: str) -> Instruction | None:
    """Read a line of a program; None if it is none."""
    found = re.match(r"\s*(ROOT )?%?([\w.-]+) = (.+?) ([a-z][\w-]*)\((.*)$", line)
    if not found:
        return None
    root, name, result, op, rest = found.groups()
    inner = rest.split(")")[0]
    operands = (inner,) if op == "parameter" else tuple(re.findall(r"%([\w.-]+)", inner))
    calls = re.search(r"\bcalls=%?([\w.-]+)", rest)
    return Instruction(name, result, op, operands, calls and calls[1], bool(root))


def size_of(result: str) -> int:
    """Bytes of all arrays in a type."""
    return sum(bits * prod(shape) for bits, shape in _shapes(result)) // 8


def _shapes(result: str) -> list[tuple[int, tuple[int, ...]]]:
    """Bits per number and shape of each array in a type."""
    return [
        (int(re.sub(r"^\D*", "", dtype) or 8), tuple(map(int, filter(None, shape.split(",")))))
        for dtype, shape in re.findall(r"([a-z]+\d+|pred)\[([\d,]*)\]", result)
    ]


def _layout(one: Instruction) -> str | None:
    found = re.search(r"\]\{([\d,]*)", one.result)
    return found and found[1]
