"""What a checkpoint holds, without its network, as plain data; `table` shows it."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

import numpy as np

from istanas_jax.look.inspection.arch import (
    FIELDS,
    Replay,
    describe_nodes,
    genotype_of,
    read_replay,
)
from istanas_jax.look.inspection.files import (
    Checkpoint,
    newest_whole,
    open_checkpoint,
    phases_in,
    size_of,
)
from istanas_jax.runs.folder import (
    CHECKPOINTS,
    GENOTYPE,
    REPLAY,
    RESULT,
    TRAINED,
    phase_epochs,
)
from istanas_jax.runs.phases import Phase
from istanas_jax.space.spaces import Space, read_space
from istanas_jax.space.wording import suggest
from istanas_jax.storage.checkpoint_files import CheckpointError, steps_in
from istanas_jax.storage.files import write_whole

SMALL = 1 << 20  # bytes of a group that is read without being asked for
NETWORK = ("params", "stats", "batch_stats")  # groups that are read only when asked for
OPTIMISERS = {"sgd": ("trace",), "adam": ("mu", "nu")}  # group: what optax keeps there


def inspect(path: str | os.PathLike, params: str | None = None) -> dict:
    """Return everything there is to tell about a checkpoint.

    Args:
      path: a run's folder, a folder of steps in it, or a step.
      params: a pattern of names; the arrays that match are listed one by one.
    """
    contents, damaged = newest_whole(path, lambda checkpoint: _contents(checkpoint, params))
    return contents | {"damaged": damaged}


def _contents(checkpoint: Checkpoint, params: str | None) -> dict:
    chosen = None if params is None else matching(checkpoint.leaves, params)
    sizes = groups(checkpoint.leaves)
    arrays = checkpoint.read(_unasked(checkpoint.leaves, sizes))
    contents = {
        "path": os.fspath(checkpoint.path),
        "what": what(checkpoint),
        "run": _run(checkpoint),
        "epoch_so_far": _epoch_so_far(arrays),
        "architecture": architecture(checkpoint, arrays),
        "groups": sizes,
        "optimisers": _optimisers(checkpoint.leaves, arrays),
    }
    if chosen is not None:
        contents["arrays"] = [_array(name, x) for name, x in checkpoint.each(chosen)]
    return plain(contents)


def _unasked(leaves: Mapping[str, list], sizes: Mapping[str, dict]) -> list[str]:
    """Names of the arrays that are always read: the architecture and small arrays."""
    small = {group for group, size in sizes.items() if size["bytes"] < SMALL} - {*NETWORK}
    return [name for name in leaves if group_of(name) in small or name.endswith(".count")]


def what(checkpoint: Checkpoint) -> dict:
    """Say which checkpoint this is, from its "about" and the run's config."""
    about = {key: value for key, value in checkpoint.about.items() if key != "leaves"}
    trained = checkpoint.path.parent.name == TRAINED
    phase = about.get("phase") or (f"{TRAINED} {checkpoint.step}" if trained else None)
    return {
        "schedule": checkpoint.config.get("schedule"),
        "phase": phase,
        "step": checkpoint.step,
        "epoch": about.get("epoch"),
        "epochs": phase_epochs(checkpoint.config, phase) if phase else None,
    } | {key: value for key, value in about.items() if key not in ("phase", "epoch", "genotype")}


def _run(checkpoint: Checkpoint) -> dict | None:
    """Describe the run of the checkpoint: what else was saved, and how it ended."""
    workdir = checkpoint.workdir
    if workdir is None:
        return None
    result = checkpoint.file(RESULT)
    folder = workdir / CHECKPOINTS
    phases = phases_in(folder) if folder.exists() else []
    return {
        "path": os.fspath(workdir.path),
        "checkpoints": {phase: steps_in(folder / phase) for phase in phases},
        "trained": steps_in(workdir / TRAINED),
        "finished": result is not None,
        "test_accuracy": result and result.get("test_accuracy"),
    }


def _epoch_so_far(arrays: Mapping[str, np.ndarray]) -> dict | None:
    """Loss and accuracy on the training images since the epoch began."""
    totals = {short(name): x for name, x in arrays.items() if short(name).startswith("totals.")}
    images = float(totals.get("totals.images", 0))
    if not images:
        return None
    loss, correct = (float(totals[f"totals.{key}"]) / images for key in ("loss", "correct"))
    return {"images": int(images), "loss": loss, "accuracy": correct}


def architecture(checkpoint: Checkpoint, arrays: Mapping[str, np.ndarray]) -> dict | None:
    """Describe both cells: in a search as they stand, later as they were found."""
    arch = {field: arrays.get(f"arch.{field}") for field in FIELDS}
    if all(x is not None for x in arch.values()):
        settings = checkpoint.config.get("search", {}).get("ista", {})
        lam = settings.get("lam")
        replay, space = _replay(checkpoint), space_of(checkpoint)
        return {
            "source": "checkpoint",
            "genotype": genotype_of(arch["support"], space).to_dict(),
            "lambda": lam,
            "implicit": bool(settings.get("implicit")),
            "recovered_at_step": replay.step if replay else None,
            "uncertified": int(arrays["uncertified"]) if "uncertified" in arrays else None,
            "nodes": describe_nodes(arch, lam, replay, space),
        }
    if "genotype" in checkpoint.about:
        return {"source": "checkpoint", "genotype": checkpoint.about["genotype"]}
    genotype = checkpoint.file(GENOTYPE)
    if genotype is None:
        return None
    found = {"source": GENOTYPE, "genotype": genotype}
    if checkpoint.about.get("phase") == Phase("train").title:
        # One-stage: until they are absorbed the coefficients are beside the network.
        search = checkpoint.file(Phase("search").file) or {}
        found["coefficients"] = search.get("coefficients")
    return found


def space_of(checkpoint: Checkpoint) -> Space:
    """The space that the checkpoint's run searches."""
    return read_space(checkpoint.config.get("space") or {})


def _replay(checkpoint: Checkpoint) -> Replay | None:
    log = checkpoint.workdir and checkpoint.workdir / REPLAY
    if not log or not log.exists():
        return None
    lines = log.read_text().splitlines()
    try:
        return read_replay(lines, checkpoint.about.get("phase"), checkpoint.step)
    except (KeyError, IndexError, TypeError) as error:
        raise CheckpointError(f"{log} is not a replay log: {error!r}") from error


def short(name: str) -> str:
    """The name without the prefix that a network's arrays have in search only."""
    return name.removeprefix("weights.")


def group_of(name: str) -> str:
    return short(name).split(".")[0]


def groups(leaves: Mapping[str, list]) -> dict[str, dict[str, int]]:
    """Count arrays, numbers and bytes by the first part of their names."""
    found = {}
    for name, leaf in leaves.items():
        group = found.setdefault(group_of(name), {"arrays": 0, "numbers": 0, "bytes": 0})
        for key, value in ({"arrays": 1} | size_of(leaf)).items():
            group[key] += value
    return found


def _optimisers(leaves: Mapping[str, list], arrays: Mapping[str, np.ndarray]) -> dict:
    """Updates done, and what each optimiser remembers, with the norms of what was read."""
    found = {}
    for group, fields in OPTIMISERS.items():
        names = [name for name in leaves if group_of(name) == group]
        if not names:
            continue
        counts = [int(arrays[name]) for name in names if name.endswith(".count")]
        found[group] = {"updates": max(counts, default=None)}
        for field in fields:
            own = [name for name in names if field in name.split(".")]
            read = [arrays[name] for name in own if name in arrays]
            found[group][field] = {
                "numbers": sum(size_of(leaves[name])["numbers"] for name in own),
                "norm": float(np.hypot.reduce([norm(x) for x in read])) if read else None,
            }
    return found


def matching(names: Collection[str], pattern: str) -> list[str]:
    """Names that match a shell pattern, or are below a plain name; `weights.` may be left out."""
    plain_name = not set(pattern) & set("*?[")
    patterns = [pattern, f"{pattern}.*"] if plain_name else [pattern]
    found = [
        name
        for name in names
        if any(fnmatchcase(form, p) for form in {name, short(name)} for p in patterns)
    ]
    if not found:
        tops = sorted({".".join(name.split(".")[:2]) for name in names})
        raise CheckpointError(f"no array matches {pattern}; there are {', '.join(tops)}")
    return found


def save_array(path: str | os.PathLike, name: str, out: str | os.PathLike) -> dict:
    """Write one array as .npy and return its description."""
    checkpoint = open_checkpoint(path)
    if name not in checkpoint.leaves:
        near = suggest(name, list(checkpoint.leaves), n=3)
        near = near if "did you mean" in near else "; --params '*' lists all"
        raise CheckpointError(f"{checkpoint.path} has no array {name}{near}")
    # A device would be replaced, not written to. (epath takes one for a file.)
    if os.path.exists(out) and not os.path.isfile(out):
        raise CheckpointError(f"{out} is not a file that could be replaced")
    x = checkpoint.read([name])[name]
    file = io.BytesIO()
    # .npy knows no bfloat16; float32 holds the same values.
    np.save(file, x.astype(np.float32) if x.dtype.name == "bfloat16" else x)
    write_whole(out, file.getvalue())
    return plain({"path": os.fspath(checkpoint.path), "out": os.fspath(out)} | _array(name, x))


def plain(x):
    """Replace infinities and NaN by None: JSON has no numbers for them."""
    if isinstance(x, dict):
        return {key: plain(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [plain(value) for value in x]
    return None if isinstance(x, float) and not np.isfinite(x) else x


def norm(x: np.ndarray) -> float:
    """The 2-norm; numpy's own uses BLAS, which spins on all cores: 5 times slower on busy ones."""
    return float(np.sqrt(np.square(x.astype(np.float64)).sum()))


def _array(name: str, x: np.ndarray) -> dict:
    size = np.abs(x.astype(np.float64))
    return {
        "name": name,
        "dtype": x.dtype.name,
        "shape": list(x.shape),
        "numbers": x.size,
        "bytes": x.nbytes,
        "norm": norm(size),
        "largest": float(size.max(initial=0)),
        "not_finite": int(x.size - np.isfinite(size).sum()),
    }
