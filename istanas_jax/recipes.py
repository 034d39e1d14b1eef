"""What a config says about images: which are used for what, and how a phase sees them."""

from ml_collections import ConfigDict

from istanas_jax.data import Dataset, Split, divide
from istanas_jax.steps import Recipe


def hold_out(config: ConfigDict, dataset: Dataset) -> tuple[Split, Split | None]:
    """Training images, and those held out (None if the config wants none).

    Both are the same for every run of a config, so that runs can be compared.
    """
    train, limit = dataset.train, config.data.limit
    if limit and limit < len(train.labels):
        some, _ = divide(len(train.labels), limit / len(train.labels), seed=config.seed)
        train = train.take(some)
    kept, held = divide(len(train.labels), 1 - config.data.holdout, seed=config.seed)
    return train.take(kept), train.take(held) if len(held) else None


def divide_training(config: ConfigDict, dataset: Dataset) -> tuple[Split, Split, Split | None]:
    """Images for W, for b, and held out, all disjoint."""
    rest, heldout = hold_out(config, dataset)
    fraction = config.search.weights_fraction
    w, b = divide(len(rest.labels), fraction, seed=config.seed)
    return rest.take(w), rest.take(b), heldout


def check_batches(config: ConfigDict, dataset: Dataset) -> None:
    """Raise, before any work is done, if a phase has too few images for one batch."""
    train, _ = hold_out(config, dataset)
    sizes = {phase: {"for training": len(train.labels)} for phase in ("search", "retrain", "train")}
    if config.schedule == "two_stage":
        w, b, _ = divide_training(config, dataset)
        sizes["search"] = {"for W": len(w.labels), "for b": len(b.labels)}
    for phase in sizes.keys() & set(config.keys()):
        for purpose, size in sizes[phase].items():
            if size < config[phase].batch:
                raise ValueError(
                    f"{phase}.batch is {config[phase].batch}, but there are {size} images {purpose}"
                )


def make_recipe(config: ConfigDict, phase: ConfigDict, dataset: Dataset, steps: int) -> Recipe:
    """How `phase`, a part of the config, sees its images over so many steps."""
    return Recipe(
        mean=tuple(dataset.mean.tolist()),
        std=tuple(dataset.std.tolist()),
        pad=config.data.pad,
        flip=config.data.flip,
        cutout=phase.cutout,
        label_smoothing=phase.label_smoothing,
        auxiliary_weight=phase.auxiliary_weight,
        drop_path=phase.drop_path,
        sync_norms=phase.sync_norms,
        total_steps=steps,
    )
