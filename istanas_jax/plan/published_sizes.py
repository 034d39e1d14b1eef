"""The published cells in one table: our counts beside the numbers that the paper prints."""

from typing import NamedTuple

from istanas_jax.networks.counting import SIZES, count
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.space.genotype import Genotype, published


class Printed(NamedTuple):
    """A row of the paper's Table 3 (CIFAR-10) or 4 (ImageNet); None where it has no such row."""

    parameters: float  # millions
    error: float  # %, top 1
    flops: float | None = None  # millions


# Rows of Table 3 and Table 4 by name of the cell. AmoebaNet-A and DARTS first order have none.
PAPER: dict[str, tuple[Printed | None, Printed | None]] = {
    "ISTA_twostage": (Printed(3.32, 2.54), None),
    "ISTA_onestage": (Printed(3.37, 2.36), Printed(4.78, 25.1, 550)),
    "ISTA_ImageNet": (None, Printed(5.65, 24.0, 638)),
    "NASNet_A": (Printed(3.3, 2.65), Printed(5.3, 26.0, 564)),
    "DARTS_V2": (Printed(3.3, 2.76), Printed(4.7, 26.7, 574)),
    "SNAS": (Printed(2.8, 2.85), Printed(4.3, 27.3, 522)),
    "PDARTS": (Printed(3.4, 2.50), Printed(4.9, 24.4, 557)),
    "PC_DARTS_cifar": (Printed(3.6, 2.57), None),
    "PC_DARTS_image": (None, Printed(5.3, 24.2, 597)),
}
ONE_STAGE = {"ISTA_onestage"}  # printed with the batch norms of one-stage nets, on CIFAR-10
NETS = ("cifar", "imagenet")


def describe_all() -> list[dict]:
    """A row per published cell and net, ready for JSON."""
    return [_row(name, cells, net) for net in NETS for name, cells in published().items()]


def _row(name: str, genotype: Genotype, net: str) -> dict:
    sizes = SIZES[net]
    one_stage = net == "cifar" and name in ONE_STAGE
    target = TargetNet(
        genotype,
        classes=sizes.classes,
        cells=sizes.cells,
        channels=sizes.channels,
        stem=net,
        regime="one_stage" if one_stage else "retrain",
    )
    counts = count(target)
    printed = PAPER.get(name, (None, None))[NETS.index(net)]
    return {
        "name": name,
        "net": net,
        "one_stage": one_stage,
        "parameters": counts.parameters,
        "multiply_adds": counts.multiply_adds,
        "flops": counts.flops,
        "paper": None if printed is None else printed._asdict(),
    }


def table(rows: list[dict]) -> str:
    """The table as text; the paper's columns are empty where it does not print the cell."""
    lines = []
    for net in NETS:
        sizes = SIZES[net]
        columns = f"{'parameters':>12}{'multiply-adds':>16}{'FLOPs':>16}"
        lines += [
            f"{net} net, {sizes.channels} channels, {sizes.cells} cells, {sizes.classes} classes, "
            f"{sizes.image_size} pixels wide",
            f"{'':20}{columns}   paper:{'parameters':>12}{'FLOPs':>8}{'error':>9}",
            *(_line(row) for row in rows if row["net"] == net),
            "",
        ]
    lines.append("* with the batch norms of one-stage nets")
    return "\n".join(lines)


def _line(row: dict) -> str:
    name = row["name"] + "*" * row["one_stage"]
    ours = f"{name:<20}{row['parameters']:>12,}{row['multiply_adds']:>16,}{row['flops']:>16,}"
    if row["paper"] is None:
        return ours
    paper = row["paper"]
    flops = "" if paper["flops"] is None else f"{paper['flops']} M"
    return f"{ours}{'':9}{paper['parameters']:>10.2f} M{flops:>8}{paper['error']:>7.2f} %"
