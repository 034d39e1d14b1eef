"""The parts of a run's page that can be opened: genotype, commands, sizes, times,
config, versions."""

from __future__ import annotations

import os
import shlex
from typing import Any

from istanas_jax.look.ascii_cells import describe_cell
from istanas_jax.look.report.facts import Facts, differences
from istanas_jax.look.report.html import Html, copyable, fold, table, tag
from istanas_jax.runs.folder import GENOTYPE, flat
from istanas_jax.runs.progress import format_seconds
from istanas_jax.space.genotype import Genotype, GenotypeError
from istanas_jax.storage.files import in_bucket
from istanas_jax.training.search_accuracy import IMAGES

COUNTED = ("parameters", "multiply_adds")


def all_folds(facts: Facts) -> list[Html]:
    folds = []
    if facts.genotype is not None:
        blocks = [copyable(*block) for block in notations(facts.genotype)]
        folds.append(fold("Genotype", *blocks, id="genotype", open=True))
    folds.append(fold("Commands", *_commands(facts), id="commands", open=True))
    if searches := _searches(facts):
        folds.append(fold("Searches and seeds", searches, id="searches"))
    if facts.sizes:
        folds.append(fold("Size of each cell", _sizes(facts), id="sizes"))
    if facts.operations:
        folds.append(fold("Time of each operation", *_operations(facts), id="operations"))
    folds.append(fold("Config", *_config(facts), id="config"))
    folds.append(fold("Versions", _versions(facts), id="versions"))
    return folds


def notations(genotype: Genotype) -> list[tuple[str, str, str]]:
    """The genotype written in three ways, each as label, text and id."""
    blocks = [
        ("DARTS", genotype.to_text(), "as-darts"),
        ("JSON", genotype.to_json(), "as-json"),
    ]
    try:
        normal, reduction = (list(map(list, cell)) for cell in genotype.supports())
        text = f"Genotype.from_supports(normal={normal}, reduce={reduction})"
        blocks.append(("flat indices, strongest first", text, "as-indices"))
    except GenotypeError:  # an operation that is never searched has no index
        lines = ["normal", *describe_cell(genotype.normal)]
        lines += ["reduction", *describe_cell(genotype.reduce)]
        blocks.append(("words", "\n".join(lines), "as-words"))
    return blocks


def _commands(facts: Facts) -> list[Html]:
    program, path = "python -m istanas_jax", shlex.quote(facts.path)
    config = str(facts.started.get("config") or "FILE")
    more = [str(override) for override in facts.started.get("overrides") or ()]
    chosen = shlex.join(["--config", config, *more])
    command = facts.started.get("command")
    name = "retrain" if facts.schedule == "retrain" else "run"
    again = f"{program} {name} {chosen} --workdir {path}"
    if command:
        again = shlex.join(map(str, command))
    after = shlex.quote(facts.path.rstrip("/") + "_retrained")
    exported = shlex.quote(facts.path.rstrip("/") + "_exported")
    cell = os.path.join(facts.path, GENOTYPE)
    if in_bucket(facts.path) and facts.genotype is not None:  # `retrain` reads no file there
        cell = facts.genotype.to_text()
    label = "the command of this run" if facts.result else "go on from where it stopped"
    blocks = [(label, again, "resume")]
    if facts.genotype is not None:
        text = f"{program} retrain {chosen} --genotype {shlex.quote(cell)} --workdir {after}"
        blocks.append(("train these cells from scratch", text, "retrain"))
    if facts.result:
        text = f"{program} export {path} --out {exported}"
        blocks.append(("take the trained network away", text, "export"))
    blocks.append(("write this page again", f"{program} report {path}", "again"))
    if not facts.started.get("config"):
        note = "FILE is the config that the run was started with; it is not recorded."
        return [tag("p", note, class_="soft"), *(copyable(*block) for block in blocks)]
    return [copyable(*block) for block in blocks]


def _searches(facts: Facts) -> Html | None:
    rows = []
    for name, result in facts.ended.items():
        accuracy = result.get("test_accuracy", result.get("accuracy"))
        split = IMAGES.get(result.get("accuracy_of"), "test images")
        same = (
            result.get("genotype")
            and facts.genotype
            and (Genotype.from_dict(result["genotype"]) == facts.genotype)
        )
        shown = "" if accuracy is None else f"{100 * accuracy:.2f} % ({split})"
        spent = format_seconds(result["seconds"]["total"])
        rows.append([name, result.get("seed", ""), shown, spent, "chosen" if same else ""])
    return table(["phase", "seed", "accuracy", "time", ""], rows) if rows else None


def _sizes(facts: Facts) -> Html:
    rows = [
        [
            f"cell {number}" + (" (reduction)" if cell["reduction"] else ""),
            *(f"{cell[key]:,}" for key in COUNTED),
        ]
        for number, cell in enumerate(facts.sizes["cells"])
    ]
    wholes = [facts.sizes[key] for key in COUNTED]
    parts = [sum(cell[key] for cell in facts.sizes["cells"]) for key in COUNTED]
    rest = [f"{whole - part:,}" for whole, part in zip(wholes, parts, strict=True)]
    rows.append(["stem and classifier", *rest])
    rows.append(["in all", *(f"{whole:,}" for whole in wholes)])
    return table(["", "parameters", "multiply-adds an image"], rows, class_="numbers")


def _operations(facts: Facts) -> list[Html]:
    """What `bench ops` measured."""
    measured = facts.operations
    rows = []
    for row in measured["rows"]:
        cells = [row[key] for key in ("operation", "channels", "size", "stride", "edges")]
        for way in ("forward", "both"):
            share, ratio = row.get(f"{way}_share"), row.get(f"{way}_ratio")
            cells.append(f"{row[f'{way}_ms']:.3f} ms")
            cells.append("" if share is None else f"{100 * share:.0f} %")
            cells.append("" if ratio is None else f"{ratio:.2f}")
        rows.append(cells)
    note = (
        f"Each operation alone in training, {measured['batch']} images, on {measured['device']}. "
        f"“of a copy” is the share of the memory's bandwidth, {measured['copy_gb_s']:.1f} GB/s; "
        f"“/ PyTorch” is the time divided by PyTorch's ({measured['torch']})."
    )
    head = ["operation", "channels", "pixels", "stride", "edges"]
    for way in ("forward", "with backward"):
        head += [way, "of a copy", "/ PyTorch"]
    return [tag("p", note, class_="soft"), table(head, rows, class_="numbers")]


def _config(facts: Facts) -> list[Html]:
    defaults, values = differences(facts), flat(facts.config)
    file = str(facts.started.get("config") or "its config file").split(":", 1)[0]
    if not defaults:
        note = "The run did not record the defaults of a config file, so no difference is marked."
        if defaults is not None:
            note = f"All as in {file}."
        rows = [[key, show(value)] for key, value in values.items()]
        return [tag("p", note, class_="soft"), table(["key", "value"], rows, class_="config")]
    keys = [*values, *(key for key in defaults if key not in values)]
    marked = lambda key, text: tag("mark", text) if key in defaults else text  # noqa: E731
    rows = [
        [
            key,
            marked(key, show(values[key]) if key in values else "not set"),
            show(defaults[key]) if key in defaults else "",
        ]
        for key in sorted(keys, key=lambda key: key not in defaults)  # keys that differ come first
    ]
    note = f"{len(defaults)} of {len(keys)} differ from {file}, marked and listed first."
    return [
        tag("p", note, class_="soft"),
        table(["key", "value", f"in {file}"], rows, class_="config"),
    ]


def _versions(facts: Facts) -> Html:
    rows = [[name, str(version)] for name, version in facts.versions.items()]
    for name in ("xla_flags", "commit", "devices", "hosts", "started"):
        if value := facts.started.get(name):
            rows.append([name, str(value)])
    return table(["", "version"], rows) if rows else tag("p", "They are not recorded.")


def show(value: Any) -> str:
    return "none" if value is None else str(value)
