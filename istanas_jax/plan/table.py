"""What `plan` found, for people: a page, or the rows of a table."""

from istanas_jax.plan.estimate import CPU_MULTIPLY_ADDS_PER_SECOND
from istanas_jax.plan.gpus import gpus
from istanas_jax.runs.progress import format_seconds

GIB = 2**30
HEADER = """\
| config | slice | phase | batch per chip | memory per chip | multiply-adds per chip and step \
| reduced per step | kernels, transposes, traffic | compilation | step | all epochs |
|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"""


def table(results: dict) -> str:
    """Format the plan as text for people."""
    chips, hosts = results["chips"], results["hosts"]
    lines = [
        f"{results['topology']}: {chips} chips of {results['memory_per_chip'] / GIB:.1f} GiB, "
        f"{hosts} host{'s' * (hosts > 1)}",
        "",
    ]
    for phase in results["phases"]:
        lines += [*_phase_lines(phase, chips), ""]
    timed = [phase for phase in results["phases"] if "schedule_seconds" in phase]
    if len(timed) == len(results["phases"]):
        whole = sum(phase["schedule_seconds"] for phase in timed)
        lines.append(f"whole schedule: about {format_seconds(whole)} of steps, if")
    else:
        lines.append("assumed:")
    lines += _assumptions(results["topology"])
    return "\n".join(lines)


def markdown(results: dict, name: str) -> str:
    """Format the plan as a Markdown row per phase, to stand under HEADER."""
    rows = []
    for phase in results["phases"]:
        compiled = "compile_seconds" in phase
        cells = [
            name,
            results["topology"],
            phase["phase"],
            f"{phase['batch_per_chip']}",
            ("≥ " if results["topology"].partition(":")[0] in gpus() else "")
            + f"{phase['memory'] / GIB:.2f} GiB"
            + ("" if phase["fits"] else " (too much)"),
            f"{phase['multiply_adds'] / 1e9:,.0f} G",
            f"{phase['reduced_bytes'] / 2**20:.1f} MiB" if compiled else "",
            _traffic(phase),
            f"{phase['compile_seconds']:.0f} s" if compiled else "",
            f"{1000 * phase['step_seconds']:.3g} ms" if compiled else "",
            format_seconds(phase["schedule_seconds"]) if compiled else "",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _traffic(phase: dict) -> str:
    if "moved_bytes" not in phase:
        return ""
    return (
        f"{phase['kernels']:,.0f}, {phase['transposes']:,.0f}, {phase['moved_bytes'] / GIB:.1f} GiB"
    )


def _phase_lines(phase: dict, chips: int) -> list[str]:
    show = lambda name, value: f"  {name:34}{value}"  # noqa: E731
    verdict = "fits" if phase["fits"] else "DOES NOT FIT"
    lines = [
        phase["phase"],
        show("batch", f"{phase['batch']}, {phase['batch_per_chip']} per chip"),
        show("memory per chip", f"{phase['memory'] / GIB:.2f} GiB: {verdict}"),
        show("multiply-adds per chip and step", f"{phase['multiply_adds']:,}"),
    ]
    if "compile_seconds" in phase:
        lines += [
            show("reduced across chips per step", f"{phase['reduced_bytes'] / 2**20:.1f} MiB"),
            show(
                "compilation",
                f"{phase['compile_seconds']:.0f} s, and {phase['trace_seconds']:.0f} s of tracing",
            ),
            *_gpu_lines(phase, show),
            show("step", f"{1000 * phase['step_seconds']:.3g} ms"),
            show("epoch", format_seconds(phase["epoch_seconds"])),
            show("all epochs", format_seconds(phase["schedule_seconds"])),
        ]
    if (largest := phase.get("largest_batch_per_chip")) is not None:
        lines.append(show("largest batch per chip that fits", largest))
        if largest:
            parts = -(-phase["batch_per_chip"] // largest)
            while phase["batch_per_chip"] % parts:
                parts += 1
            advice = f"--config.{phase['phase']}.microbatches={parts}"
            lines.append(show("or keep the batch, in parts", advice))
    return lines


def _gpu_lines(phase: dict, show) -> list[str]:
    """What is known of a GPU's program instead of its time; nothing for other devices."""
    if "moved_bytes" not in phase:
        return []
    return [
        show("kernels per step", f"{phase['kernels']:,.0f}"),
        show("transposes of images per step", f"{phase['transposes']:,.0f}"),
        show("moved per step", f"{phase['moved_bytes'] / 2**30:.2f} GiB"),
    ]


def _assumptions(topology: str) -> list[str]:
    lines = ["  - the architecture found costs what the paper's costs,"]
    if topology.startswith("cpu"):
        rate = f"{CPU_MULTIPLY_ADDS_PER_SECOND / 1e9:.0f} G multiply-adds per second"
        lines.append(f"  - the devices together do {rate}, as 2 cores of an AMD EPYC did,")
    elif topology.partition(":")[0] in gpus():
        lines += [
            "  - a step takes no longer than its traffic or its work alone: a lower bound,",
            "  - cuDNN needs no memory of its own: memory per chip is a lower bound too,",
        ]
    else:
        lines.append("  - a step takes the compiler's estimates of its instructions, one by one,")
    lines.append("  - data, recovery, evaluation and checkpoints come on top, and are small.")
    return lines
