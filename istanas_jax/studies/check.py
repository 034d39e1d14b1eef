"""Checks that a study can be done, before anything is written."""

from collections import Counter

from ml_collections import ConfigDict

from istanas_jax.space import genotype


def check_study(settings: ConfigDict) -> None:
    """Raise a ValueError of one sentence if a config's `study` part cannot be done.

    Single values are checked where configs are: `config.bounds`.
    """
    for method, times in Counter(settings.methods).items():
        if times > 1:
            raise ValueError(f"study.methods names {method!r} {times} times: once is enough")
    if settings.name == "quality" and "pdarts" in settings.methods:
        raise ValueError("study.methods names pdarts, whose stages study quality cannot time")
    for cell in settings.get("cells", ()):
        genotype.load(cell)
    parts = [settings.methods, settings.get("one_stage"), settings.get("cells")]
    if not any(parts) or ("batches" in settings and not settings.batches):
        raise ValueError(
            "the study has nothing to do: study.methods names the methods to compare"
            + (", study.batches the batch sizes" if "batches" in settings else "")
        )
