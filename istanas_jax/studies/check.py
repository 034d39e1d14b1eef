"""Checks that a study can be done, before anything is written."""

from collections import Counter

from ml_collections import ConfigDict

from istanas_jax.space import genotype
from istanas_jax.space.spaces import read_space


def check_study(settings: ConfigDict) -> None:
    """Raise a ValueError of one sentence if a config's `study` part cannot be done.

    Single values are checked where configs are: `config.bounds`.
    """
    for key in ("methods", "spaces"):
        for name, times in Counter(settings.get(key, ())).items():
            if times > 1:
                raise ValueError(f"study.{key} names {name!r} {times} times: once is enough")
    for space in settings.get("spaces", ()):
        read_space({"name": space})
    if settings.name == "quality" and "pdarts" in settings.methods:
        raise ValueError("study.methods names pdarts, whose stages study quality cannot time")
    for cell in settings.get("cells", ()):
        genotype.load(cell)
    parts = [settings.methods, settings.get("one_stage"), settings.get("cells")]
    lists = {"batches": "the batch sizes", "spaces": "the search spaces"}
    lists = {key: words for key, words in lists.items() if key in settings}
    if not any(parts) or not all(settings[key] for key in lists):
        raise ValueError(
            "the study has nothing to do: study.methods names the methods to compare"
            + "".join(f", study.{key} {words}" for key, words in lists.items())
        )
