"""Every number of the shipped configs changes what a run does, not only something it reads.

A config is built into its tasks, and these are compared with those of a config in which one number
differs: the network, the images and their order, what the optimisers do, what the method does. For
the way images are seen, only what the traced step reads counts.
"""

import pytest
from effects import Effects, config_of, difference, other, replaced
from shipped_configs import numbers_in, shipped

from istanas_jax.config.bounds import values_of
from istanas_jax.methods import METHODS

# Numbers that change no program, and where what they do is tested.
ELSEWHERE = {
    "checkpoint.every_minutes": "when a run saves: test_checkpoints",
    "checkpoint.every_steps": "when a run saves: test_checkpoints",
    "checkpoint.keep_last": "what stays of it: test_checkpoints",
    "search.ista.recovery.max_uncertified": "when a run gives up: test_two_stage",
    "search.ista.budget.max_latency_ms": "which connections are too slow: test_latency",
    "search.ista.budget.latency_batch": "how many images are timed at once: test_latency",
    "search.gdas.temperature": "the gradient of what was drawn: test_drawing_methods",
    "search.gdas.final_temperature": "the gradient of what was drawn: test_drawing_methods",
    "search.stop.weight_free": "when a search ends early: test_watch",
    "search.stop.unchanged_epochs": "when a search ends early: test_watch",
    "search.stop.warning": "what is said of a search: test_watch",
    "search.runs": "how many searches follow each other: test_two_stage",
    "train.runs": "how many trainings follow each other: test_studies",
    "train.transfer.run": "which network a training starts from: test_transfer",
    "train.transfer.stem_rate": "what the stem learns: test_transfer",
    "train.transfer.cells_rate": "what the cells learn: test_transfer",
    "train.transfer.head_rate": "what the head learns: test_transfer",
    "data.workers": "how many processes decode images: test_streaming",
    "data.resize": "how streamed test images are cut: test_streaming",
}
SEARCHES = ("one_stage", *METHODS)


def is_number(value) -> bool:
    return bool(numbers_in(value)) and not isinstance(value, bool)


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_every_number_changes_something(search):
    config = config_of(search)
    # A training is the same for all methods.
    phases = {"search", "train"} if search in ("one_stage", "ista") else {"search"}
    baselines = {phase: Effects(config, phase) for phase in phases}
    nothing = []
    for key, value in values_of(config):
        if not is_number(value) or key in ELSEWHERE:
            continue
        phase = "train" if key.startswith("train.") else "search"
        if phase in phases and not difference(
            replaced(config, key, other(key, value)), baselines[phase], phase
        ):
            nothing.append(key)
    assert not nothing


def test_every_number_of_every_config_is_tried():
    tried = {key for search in SEARCHES for key, _ in values_of(config_of(search))}
    for config in shipped().values():
        for key, value in values_of(config):
            own = key.removeprefix("one_stage.")
            if is_number(value) and not key.startswith("study."):  # whose numbers are of no run
                assert own in tried or own in ELSEWHERE, key


@pytest.mark.parametrize("key", ["drop_path", "cells", "epochs"])
def test_numbers_that_do_nothing_are_found(key):
    """What used to be accepted: the test above would name it."""
    config = config_of("pdarts").copy_and_resolve_references()
    config.search[key] = 0.2 if key == "drop_path" else 5
    changed = replaced(config, f"search.{key}", 0.3 if key == "drop_path" else 6)
    assert difference(changed, Effects(config, "search"), "search") is None
