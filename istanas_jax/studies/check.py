"""Whether a study asks for something that can be done, before anything is written."""

from collections import Counter

from ml_collections import ConfigDict

from istanas_jax import genotype
from istanas_jax.methods import METHODS


def check_study(settings: ConfigDict) -> None:
    """Raise a ValueError of one sentence if a config's `study` part cannot be done."""
    for method, times in Counter(settings.methods).items():
        if method not in METHODS:
            raise ValueError(
                f"study.methods names {method!r}, which is no search method: choose from "
                f"{', '.join(METHODS)}"
            )
        if times > 1:
            raise ValueError(f"study.methods names {method!r} {times} times: once is enough")
    for key in ("seeds", "steps", "resamples"):
        if settings.get(key, 1) < 1:
            raise ValueError(f"study.{key} is {settings[key]}, it must be 1 or more")
    for batch in settings.get("batches", ()):
        if batch < 1:
            raise ValueError(f"study.batches has {batch}, a batch must be 1 or more")
    for cell in settings.get("cells", ()):
        genotype.load(cell)
    parts = [settings.methods, settings.get("one_stage"), settings.get("cells")]
    if not any(parts) or ("batches" in settings and not settings.batches):
        raise ValueError(
            "the study has nothing to do: study.methods names the methods to compare"
            + (", study.batches the batch sizes" if "batches" in settings else "")
        )
