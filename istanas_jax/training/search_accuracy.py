"""What a search is judged by: the accuracy of its super-net in evaluation, and on which images.

`search_N.json` has `accuracy`, `loss` and `accuracy_of`, one of `IMAGES`. `heldout_accuracy`, in
rows of metrics.jsonl and in files of trainings, is of held-out images wherever it stands.
"""

from collections.abc import Mapping
from typing import Any

IMAGES = {
    "heldout": "held-out images",
    "b": "images of b",  # train b, as in the paper, but no weights
    "training": "training images",
}


def accuracy_of(schedule: str, *, holds_out: bool) -> str:
    """The images that a search is judged on: those held out or, without any, what there is."""
    if holds_out:
        return "heldout"
    return "training" if schedule == "one_stage" else "b"


def named_accuracy(on: str, measured: Mapping[str, float]) -> dict[str, Any]:
    """An evaluation on these images, under the keys of search_N.json."""
    return {"accuracy_of": on, "accuracy": measured["accuracy"], "loss": measured["loss"]}


def read_search(measured: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """What search_N.json holds; earlier versions called every accuracy held-out."""
    measured = dict(measured)
    if "heldout_accuracy" in measured:
        before = {key: measured.pop(f"heldout_{key}", None) for key in ("accuracy", "loss")}
        on = accuracy_of(
            config["schedule"], holds_out=config["data"].get("holdout_fraction", 0) > 0
        )
        measured |= named_accuracy(on, before)
    return measured
