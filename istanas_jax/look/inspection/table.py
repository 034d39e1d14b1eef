"""What `inspect` found, for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

from istanas_jax.look.ascii_cells import describe_cells, draw_cell, state_names
from istanas_jax.runs.progress import format_seconds
from istanas_jax.space.connections import NUM_INPUTS
from istanas_jax.space.genotype import FIELDS, Genotype, in_order_of

B_SHOWN = 7  # entries of b in a line
# Groups of a few numbers that are told elsewhere, or are of no interest.
BOOKKEEPING = {"seed", "step", "totals", "b_totals", "z_epoch", "uncertified"}


def table(results: dict) -> str:
    """A page about one checkpoint."""
    parts = [_passed_over(results["damaged"])] if results["damaged"] else []
    parts.append(_what(results))
    if results["architecture"]:
        parts.append(_architecture(results["architecture"]))
    parts.append(_groups(results))
    if "arrays" in results:
        parts.append(_arrays(results["arrays"]))
    return "\n\n".join(parts)


def _passed_over(damaged: Sequence[str]) -> str:
    lines = [f"passed over: {sentence}" for sentence in damaged]
    return "\n".join([*lines, "this is the newest checkpoint that is whole; a run goes on from it"])


def columns(rows: Sequence[Sequence[str]], align: str, gap: str = "  ") -> list[str]:
    """Lines of cells under each other; `align` has a < or > per column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        gap.join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def title(what: dict) -> str:
    """`one_stage, search 0, step 2496, epoch 8 of 60`."""
    said = [what["schedule"], what["phase"] or "phase unknown"]
    if what["epoch"] is not None:
        of = f" of {what['epochs']}" if what["epochs"] else ""
        said += [f"step {what['step']:,}", f"after epoch {what['epoch']}{of}"]
    return ", ".join(filter(None, said))


def _what(results: dict) -> str:
    what, run = results["what"], results["run"]
    rows = [("path", results["path"]), ("written", what["written"][:19].replace("T", " ") + " UTC")]
    versions = {name: f"{name} {version}" for name, version in reversed(what["versions"].items())}
    compilers = [versions.pop(name) for name in ("jaxlib", "libtpu") if name in versions]
    rows.append(("by", ", ".join(versions.values())))
    if compilers:  # older checkpoints do not name them
        rows.append(("XLA", ", ".join(compilers)))
    rows += [("", flag) for flag in what.get("xla_flags", "").split()]
    if "seconds" in what:
        devices = what.get("devices")
        on = f" on {devices} device{'s' * (devices != 1)}" if devices else ""
        rows.append(("took", format_seconds(what["seconds"].get("total", 0)) + on))
    if so_far := results["epoch_so_far"]:
        rows.append(
            (
                "now",
                f"loss {so_far['loss']:.4f}, accuracy {100 * so_far['accuracy']:.2f} % of "
                f"{so_far['images']:,} images in this epoch",
            )
        )
    if what["score"] is not None:
        rows.append(("score", f"{100 * what['score']:.2f} % of held-out images"))
    if run:
        rows += [("run", _run(run)), *(("", line) for line in _steps(run))]
    return "\n".join([title(what), *columns([(f"  {k}", v) for k, v in rows], "<<")])


def _run(run: dict) -> str:
    if not run["finished"]:
        return "not finished"
    accuracy = run["test_accuracy"]
    return "finished" + (f", test accuracy {100 * accuracy:.2f} %" if accuracy is not None else "")


def _steps(run: dict) -> list[str]:
    return [f"{phase}: {', '.join(map(str, steps))}" for phase, steps in run["checkpoints"].items()]


def _architecture(found: dict) -> str:
    genotype = Genotype.from_dict(found["genotype"])
    source = "" if found["source"] == "checkpoint" else f" (from {found['source']})"
    lines = [f"architecture{source}", describe_cells(genotype)]
    notes = _notes(found, genotype)
    for c, field in enumerate(FIELDS):
        head = "normal cell" if c == 0 else "reduction cell"
        said = notes[c] if notes else None
        drawing = draw_cell(getattr(genotype, field), getattr(genotype, f"{field}_concat"), said)
        lines += ["", f"{head}{_legend(found)}", *(f"  {line}" for line in drawing.splitlines())]
    if "nodes" in found:
        lines += ["", *_nodes(found)]
    return "\n".join(lines)


def _legend(found: dict) -> str:
    if "nodes" in found:
        # Without jax the z(b) that such a search runs with cannot be recovered here.
        by = ", both of the last recovery" if found.get("implicit") else ""
        return f": operation, flat index, z, coefficient{by}"
    return ": operation, coefficient" if found.get("coefficients") else ""


def _notes(found: dict, genotype: Genotype) -> list[list[list[str]]] | None:
    """The notes beside each connection, in the genotype's order."""
    if "nodes" in found:
        half = len(found["nodes"]) // 2
        said = [[_node_notes(node) for node in found["nodes"][i : i + half]] for i in (0, half)]
    elif found.get("coefficients"):
        said = [[[f"{w:+.3g}" for w in node] for node in cell] for cell in found["coefficients"]]
    else:
        return None
    return in_order_of(genotype, said)


def _node_notes(node: dict) -> list[str]:
    return [
        f"{flat:2}  {node['z'][flat]:<+8.3g}  {w:+.3g}"
        for flat, w in zip(node["support"], node["coefficients"], strict=True)
    ]


def _nodes(found: dict) -> list[str]:
    """Lines about b and the state of z, node by node."""
    large = max(abs(x) for node in found["nodes"] for x in node["b"]) >= 0.1
    rows = [("node", "frozen", "z not 0", "KKT", "b" if large else "b * 1000")]
    for node in found["nodes"]:
        b = " ".join(f"{x:+.4f}" if large else f"{1000 * x:+7.3f}" for x in node["b"][:B_SHOWN])
        rows.append(
            (
                f"{node['cell'] if node['node'] == 0 else '':9} {node['node']}",
                _frozen(node),
                f"{node['nonzero']} of {len(node['z'])}",
                "?" if node["kkt"] is None else f"{node['kkt']:.2g}",
                b + (" ..." if len(node["b"]) > B_SHOWN else ""),
            )
        )
    lines = [*columns(rows, "><>><"), *_about_kkt(found)]
    if found["uncertified"]:
        lines.append(f"the last {found['uncertified']} recoveries are not certified")
    return [f"  {line}" for line in lines]


def _frozen(node: dict) -> str:
    if not node["frozen"]:
        return "no"
    since = node["frozen_since_epoch"]
    return "yes" if since is None else f"epoch {since}"


def _about_kkt(found: dict) -> list[str]:
    if found["lambda"] is None:
        return ["no KKT residual: lambda is in the run's config.json, which is not there"]
    said = f"KKT: residual of z for the b of now, in lambda ({found['lambda']:g})"
    if found["recovered_at_step"] is None:
        return [f"{said}; grows while b moves, until z is recovered"]
    worst = max(node["kkt_at_recovery"] for node in found["nodes"])
    return [said, f"     when z was recovered, at step {found['recovered_at_step']}: {worst:.2g}"]


def size(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count} B"
        count /= 1000
    return f"{count:.3g} GB"


def _groups(results: dict) -> str:
    rows = [("arrays", "", "numbers", "", "")]
    for group, has in results["groups"].items():
        if group not in BOOKKEEPING:
            numbers, remembered = f"{has['numbers']:,}", _optimiser(results, group)
            rows.append((f"  {group}", str(has["arrays"]), numbers, size(has["bytes"]), remembered))
    return "\n".join(columns(rows, "<>>><"))


def _optimiser(results: dict, group: str) -> str:
    if group not in results["optimisers"]:
        return ""
    state = results["optimisers"][group]
    said = [] if state["updates"] is None else [f"{state['updates']:,} updates"]
    for field, has in state.items():
        if field != "updates" and has["norm"] is not None:
            said.append(f"norm of {field} {has['norm']:.3g}")
    return ", ".join(said)


def _arrays(arrays: list[dict]) -> str:
    rows = [("name", "type", "shape", "numbers", "norm", "largest")]
    for x in arrays:
        norm, largest = ("NaN" if x[k] is None else f"{x[k]:.4g}" for k in ("norm", "largest"))
        shape = "x".join(map(str, x["shape"])) or "-"
        rows.append((x["name"], x["dtype"], shape, f"{x['numbers']:,}", norm, largest))
    total = math.hypot(*(x["norm"] or 0 for x in arrays))
    numbers = sum(x["numbers"] for x in arrays)
    rows.append((f"{len(arrays)} arrays", "", "", f"{numbers:,}", f"{total:.4g}", ""))
    lines = columns(rows, "<<>>>>")
    if broken := [x["name"] for x in arrays if x["not_finite"]]:
        lines.append(f"not finite: {', '.join(broken)}")
    return "\n".join(lines)


def show_array(x: dict) -> str:
    """Describe an array that was written to a file."""
    shape = "x".join(map(str, x["shape"])) or "a single number"
    return f"{x['name']}: {x['dtype']}, {shape}, norm {x['norm'] or 0:.4g}, written to {x['out']}"


def diff_table(results: dict) -> str:
    """A page about two checkpoints."""
    lines = [f"{side.upper()}  {title(results[side]['what'])}" for side in "ab"]
    if results["architecture"]:
        lines += ["", *_changes(results["architecture"])]
    lines += ["", *_group_changes(results["groups"])]
    if results["moved"]:
        lines += ["", *_moved(results)]
    return "\n".join(lines)


def _changes(found: dict) -> list[str]:
    nodes = found["nodes"]
    changed = sum(bool(node["added"] or node["removed"]) for node in nodes)
    lines = [f"operations: {changed} of {len(nodes)} nodes differ"]
    if found["same_A"] is False:
        lines.append("  A differs: z and b are not of the same problem")
    rows = [("", "node", "z moved", "b moved", "frozen", "operations")]
    for node in nodes:
        moved = [f"{node[k]:.3g}" if k in node else "" for k in ("z_distance", "b_distance")]
        cell_type = node["cell"] if node["node"] == 0 else ""
        first, *more = _exchanges(node) or [""]
        rows.append((cell_type, str(node["node"]), *moved, _froze(node), first))
        rows += [("", "", "", "", "", line) for line in more]
    return lines + columns([(f"  {first}", *rest) for first, *rest in rows], "<<>><<")


def _exchanges(node: dict) -> list[str]:
    pairs = zip_longest(node["removed"], node["added"])
    signs = [(("-", old), ("+", new)) for old, new in pairs]
    return ["  ".join(f"{s} {_name(x, node)}" for s, x in pair if x) for pair in signs]


def _name(x: dict, node: dict) -> str:
    return f"{x['operation']}({state_names(node['node'] + NUM_INPUTS)[x['predecessor']]})"


def _froze(node: dict) -> str:
    before, after = node.get("frozen", (False, False))
    if before == after:
        return "both" if after else ""
    return "in B" if after else "in A"


def _group_changes(groups: dict) -> list[str]:
    rows = [("arrays", "same", "moved", "other shape", "only in A", "only in B")]
    for group, count in groups.items():
        if group not in BOOKKEEPING:
            rows.append((f"  {group}", *(str(number or "") for number in count.values())))
    return columns(rows, "<>>>>>")


def _moved(results: dict) -> list[str]:
    """How far arrays moved: one by one if a pattern was given, else by part of the network."""
    parts: dict[str, list[dict]] = {}
    for x in results["moved"]:
        whole = results["pattern"] is not None
        part = x["name"] if whole else ".".join(x["name"].split(".")[:2])
        parts.setdefault(part, []).append(x)
    rows = [("moved", "arrays", "by", "of their norm")]
    for part, moved in parts.items():
        distance, norm = (math.hypot(*(x[k] or 0 for x in moved)) for k in ("distance", "norm"))
        relative = f"{100 * distance / norm:.2f} %" if norm else ""
        rows.append((f"  {part}", str(len(moved)), f"{distance:.4g}", relative))
    return columns(rows, "<>>>")
