"""Config keys that had another name in an earlier version; messages give the new one."""

import re

# Applied one after the other, since a key may have changed in two places.
CHANGES = (
    (r"^retrain\.", "train."),
    (r"^architecture\.(columns|distinct|implicit|lam|m|sigma|signed)$", r"search.ista.\1"),
    (r"^architecture\.(nodes|s)$", r"space.\1"),
    (r"^recovery\.first$", "search.ista.first_update"),
    (r"^recovery\.freeze$", "search.ista.freeze.rule"),
    (r"^recovery\.(distance|epsilon)$", r"search.ista.freeze.\1"),
    (r"^recovery\.", "search.ista.recovery."),
    (r"^explore\.", "search.ista.explore."),
    (r"^search\.b\.", "search.ista.adam."),
    (r"^search\.budget\.", "search.ista.budget."),
    (r"^search\.(darts|darts_second_order|nasp|pc_darts|pdarts|snas)\.alpha\.", r"search.\1.adam."),
    (r"^(search|train)\.accumulate$", r"\1.microbatches"),
    (r"^(search|train)\.weights\.decay$", r"\1.weights.learning_rate_schedule"),
    (r"^(search|train)\.weights\.clip$", r"\1.weights.max_gradient_norm"),
    (r"^checkpoint\.keep$", "checkpoint.keep_last"),
    (r"^data\.(holdout|test)$", r"data.\1_fraction"),
    (r"^data\.limit$", "data.max_images"),
    (r"^study\.kind$", "study.name"),
)


def new_name(key: str) -> str | None:
    """What a key of an earlier version is called now; None if its name is still the same.

    >>> new_name("retrain.weights.clip")
    'train.weights.max_gradient_norm'
    """
    prefix = "one_stage." if key.startswith("one_stage.") else ""  # inside a study's config
    now = key.removeprefix(prefix)
    for old, new in CHANGES:
        now = re.sub(old, new, now)
    now = prefix + now
    return None if now == key else now
