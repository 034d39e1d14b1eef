"""The published cells in one table: our counts beside the numbers that the paper prints."""

from istanas_jax.judge import regression
from istanas_jax.networks.counting import SIZES, count
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.space.genotype import Genotype, published
from istanas_jax.space.paper_tables import CIFAR10, IMAGENET, Row, find_row

ONE_STAGE = {"ISTA_onestage"}  # printed with the batch norms of one-stage nets, on CIFAR-10
TABLES = {"cifar": CIFAR10, "imagenet": IMAGENET}


def describe_all() -> list[dict]:
    """A row per published cell and net, ready for JSON."""
    return [_row(name, cells, net) for net in TABLES for name, cells in published().items()]


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
    printed = find_row(TABLES[net], name)
    return {
        "name": name,
        "net": net,
        "one_stage": one_stage,
        "parameters": counts.parameters,
        "multiply_adds": counts.multiply_adds,
        "flops": counts.flops,
        "percentile": _percentile(genotype) if net == "cifar" else None,
        "paper": printed and _numbers(printed),
    }


def _percentile(genotype: Genotype) -> float | None:
    """Random cells that the judge expects to do worse, in percent; None for cells it cannot judge.

    It was fitted to trainings on CIFAR-10, so it says nothing of other nets.
    """
    if regression.why_not(genotype):
        return None
    return round(regression.judge(genotype).percentile, 1)


def _numbers(row: Row) -> dict:
    """What the paper prints: million parameters, top-1 error in %, million FLOPs."""
    error = float(row.error.split()[0])  # without its deviation
    return {"parameters": float(row.parameters), "error": error, "flops": row.flops}


def table(rows: list[dict]) -> str:
    """The table as text; the paper's columns are empty where it does not print the cell."""
    lines = []
    for net in TABLES:
        sizes = SIZES[net]
        columns = f"{'parameters':>12}{'multiply-adds':>16}{'FLOPs':>16}{'judge':>8}"
        lines += [
            f"{net} net, {sizes.channels} channels, {sizes.cells} cells, {sizes.classes} classes, "
            f"{sizes.image_size} pixels wide",
            f"{'':20}{columns}   paper:{'parameters':>12}{'FLOPs':>8}{'error':>9}",
            *(_line(row) for row in rows if row["net"] == net),
            "",
        ]
    lines.append("* with the batch norms of one-stage nets")
    lines.append(
        "judge: share of random cells that `judge` expects to do worse on CIFAR-10; it knows cells "
        "of 4 nodes and the 7 operations of DARTS"
    )
    return "\n".join(lines)


def _line(row: dict) -> str:
    name = row["name"] + "*" * row["one_stage"]
    ours = f"{name:<20}{row['parameters']:>12,}{row['multiply_adds']:>16,}{row['flops']:>16,}"
    ours += " " * 8 if row["percentile"] is None else f"{row['percentile']:>7.1f}%"
    if row["paper"] is None:
        return ours.rstrip()
    paper = row["paper"]
    flops = "" if paper["flops"] is None else f"{paper['flops']} M"
    return f"{ours}{'':9}{paper['parameters']:>10.2f} M{flops:>8}{paper['error']:>7.2f} %"
