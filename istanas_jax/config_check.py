"""Whether the values of a config make sense, before anything is read, written or compiled."""

from ml_collections import ConfigDict

from istanas_jax.config_bounds import check_values

PHASES = ("search", "retrain", "train")


def check_config(config: ConfigDict, devices: int) -> None:
    """Raise a ValueError that says in one sentence what is wrong, if something is."""
    check_values(config)
    if config.schedule == "one_stage" and config.search.method != "ista":
        raise ValueError(
            f"search.method is {config.search.method}, but only ista searches in one stage"
        )
    for phase in PHASES:
        if phase not in config:
            continue
        batch, parts = config[phase].batch, config[phase].accumulate
        if batch % (devices * parts):
            said = f"{devices} devices" + (f" times {parts} parts" if parts > 1 else "")
            raise ValueError(f"{phase}.batch {batch} cannot be divided by {said}")
