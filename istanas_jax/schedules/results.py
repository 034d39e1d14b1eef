"""What a schedule leaves in its folder at the end: architecture, result, curves and report."""

import statistics
from collections.abc import Mapping
from typing import Any

from istanas_jax.devices.parallel import from_leader, is_leader
from istanas_jax.look import curves, drawing
from istanas_jax.look.ascii_cells import describe_cells
from istanas_jax.look.report import run_page
from istanas_jax.networks import latency
from istanas_jax.networks.counting import count
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.runs import metrics
from istanas_jax.runs.folder import CELLS, CURVES, GENOTYPE, LATENCY, RESULT, SIZES, Workdir
from istanas_jax.runs.progress import format_seconds
from istanas_jax.runs.session import Session
from istanas_jax.space.connections import reduction_cells
from istanas_jax.space.genotype import SPACE, Genotype, in_order_of
from istanas_jax.space.spaces import DARTS, read_space


def write_architecture(session: Session, net: TargetNet, coefficients=None) -> None:
    """Write the cells of the target net, as JSON and as pictures, and the net's sizes.

    coefficients: weights of the connections, strongest first.
    """
    if not is_leader():
        return
    genotype = net.genotype
    session.workdir.write(GENOTYPE, genotype.to_dict() | named_space(session.config))
    sizes = sizes_of(net, session.dataset.image_size)
    session.workdir.write(SIZES, sizes | _latency(session, net, sizes["genotype_hash"]))
    if coefficients is not None:
        coefficients = in_order_of(genotype, coefficients)
    drawing.write_cells(genotype, session.workdir / CELLS, coefficients)


def named_space(config: Mapping[str, Any]) -> dict:
    """The space that was searched, for files that name no other than that of DARTS."""
    space = read_space(config.get(SPACE) or {})
    return {} if space == DARTS else {SPACE: space.to_dict()}


def sizes_of(net: TargetNet, image_size: int) -> dict:
    """What sizes.json holds; the reports, which do without the networks, read it."""
    counts = count(net.clone(auxiliary=False), image_size)
    reductions = reduction_cells(net.cells)
    cells = [
        {
            "parameters": cell.parameters,
            "multiply_adds": cell.multiply_adds,
            "reduction": number in reductions,
        }
        for number, cell in enumerate(counts.cells)
    ]
    return {
        "genotype_hash": net.genotype.digest,
        "parameters": counts.parameters,
        "multiply_adds": counts.multiply_adds,
        "cells": cells,
    }


def _latency(session: Session, net: TargetNet, genotype_hash: str) -> dict:
    """The latency of the net, predicted and measured once, if a budget limits it."""
    table, before = session.workdir.read(LATENCY), session.workdir.read(SIZES) or {}
    if table is None:
        return {}
    if before.get("genotype_hash") == genotype_hash and "latency" in before:
        return {"latency": before["latency"]}
    size, batch = session.dataset.image_size, table["batch"]
    space = read_space(session.config.space)
    predicted = latency.latencies(table, net, size, space).of(net.genotype)
    measured = latency.net_ms(net, size, batch)
    session.say(
        f"the network takes {measured:.3g} ms for {_images(batch)} here, {predicted:.3g} ms "
        "were predicted"
    )
    shown = {"predicted_ms": predicted, "measured_ms": measured, "batch": batch}
    return {"latency": shown}


def _images(number: int) -> str:
    return "an image" if number == 1 else f"{number} images"


def write_result(session: Session, result: dict) -> dict:
    """Write result.json, curves and report, and print the result; return it."""
    if is_leader():
        sizes = session.workdir.read(SIZES) or {}
        result |= {key: sizes[key] for key in ("latency",) if key in sizes}
        curves.write_curves(metrics.read(session.log.path), session.workdir / CURVES)
        result |= named_space(session.config)
        session.workdir.write(RESULT, result)
        session.say(in_words(result, session.workdir))
    result = from_leader(result)
    write_report(session)  # last: nobody waits for it
    return result


def write_report(session: Session) -> None:
    """Write the page of the run; if that fails, the run is not lost."""
    if not is_leader():
        return
    try:
        session.say(f"the report is {run_page.write(session.workdir.path)}")
    except Exception as error:  # a run must not fail for a page that is only looked at
        session.say(
            f"the report could not be written ({error}); once that is fixed: "
            f"python -m istanas_jax report {session.workdir.path}"
        )


def accuracies(trainings: list[dict]) -> dict:
    """Means and deviations over the seeds of a training."""
    values = [training["test_accuracy"] for training in trainings]
    return {
        "test_accuracy": statistics.fmean(values),
        "test_accuracy_deviation": statistics.stdev(values) if len(values) > 1 else None,
        "test_accuracies": values,
        "test_top5_accuracy": statistics.fmean(t["test_top5_accuracy"] for t in trainings),
        "seeds": [training["seed"] for training in trainings],
    }


def in_words(result: dict, workdir: Workdir) -> str:
    deviation = result["test_accuracy_deviation"]
    seeds = len(result["seeds"])
    spread = f" ± {100 * deviation:.2f} over {seeds} seeds" if deviation is not None else ""
    lines = [
        "",
        f"test accuracy {100 * result['test_accuracy']:.2f} %{spread} (top 5: "
        f"{100 * result['test_top5_accuracy']:.2f} %), {result['parameters']:,} parameters",
        describe_cells(Genotype.from_dict(result["genotype"])),
    ]
    spent = []
    for phase, seconds in result["seconds"].items():
        spent.append(
            f"{phase} {format_seconds(seconds['total'])} "
            f"({format_seconds(seconds.get('compile', 0))} of it compiling)"
        )
    lines += [f"time: {', '.join(spent)}", f"everything is in {workdir.path}"]
    return "\n".join(lines)
