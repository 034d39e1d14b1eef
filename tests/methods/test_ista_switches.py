"""Every switch of ISTA-NAS changes what it says and nothing else; with all on, resume is exact."""

import dataclasses
import signal

import pytest
from places import ROOT
from tiny_runs import PAPER, rows, timeless, tiny

from istanas_jax.config.files import load_config
from istanas_jax.methods import find_method
from istanas_jax.runs.interrupts import Interrupted
from istanas_jax.schedules import two_stage
from istanas_jax.schedules.search import Search

# What of a method differs from the paper's two-stage, or from the release's one-stage, by switch.
TWO_STAGE = {
    "m=28": {"coding.m"},
    "columns=sphere": {"coding.columns"},
    "signed=True": {"coding.signed"},
    "distinct=True": {"coding.distinct"},
    "first_update=w": {"weights_first"},
    "explore.draw=True": {"explores", "batch_statistics"},
    "explore.shared_weights=True": {"shared"},
    "explore.one_loss=True": {"batches_per_step", "update"},
    "explore.warmup_epochs=1": {"warmup"},
}
ONE_STAGE = {
    "freeze.rule=together": {"freezing"},
    "freeze.distance=kept": {"coding.whole_distance"},
    "freeze.epsilon=0.5": {"freezing"},
}


def of_method(variant, overrides):
    """Its attributes by name; none of them is the config."""
    spec = str(ROOT / "configs" / f"digits.py:{variant}")
    config = load_config(spec, [f"--config.{override}" for override in overrides])
    method = find_method("ista")(config, 10)
    names = ("weights_first", "batch_statistics", "batches_per_step", "update", "epochs_of_w")
    found = vars(method) | {name: getattr(method, name) for name in names}
    coding = {f"coding.{k}": v for k, v in dataclasses.asdict(found.pop("coding")).items()}
    return {k: v for k, v in (found | coding).items() if k != "config"}


@pytest.mark.parametrize(
    ("variant", "switch", "expected"),
    [("tiny", *item) for item in TWO_STAGE.items()]
    + [("one_stage_tiny", *item) for item in ONE_STAGE.items()],
)
def test_a_switch_changes_what_it_says(variant, switch, expected):
    plain = PAPER if variant == "tiny" else []
    before = of_method(variant, plain)
    after = of_method(variant, [*plain, f"search.ista.{switch}"])
    assert {name for name in before | after if before.get(name) != after.get(name)} == expected


@pytest.mark.slow
def test_all_switches_killed_and_resumed(tmp_path, monkeypatch):
    ours = ["m=28", "columns=sphere", "signed=True", "distinct=True", "recovery.every=2"]
    ours += [f"explore.{key}=True" for key in ("draw", "shared_weights", "one_loss")]
    config = tiny(*(f"search.ista.{switch}" for switch in [*ours, "explore.warmup_epochs=1"]))
    straight = two_stage.search(config, tmp_path / "straight")
    before = Search.before

    def dies(task, state, step):
        if step == task.steps_per_epoch + 1:  # b has moved, and z was not recovered since
            signal.raise_signal(signal.SIGTERM)
        return before(task, state, step)

    with monkeypatch.context() as patched:
        patched.setattr(Search, "before", dies)
        with pytest.raises(Interrupted):
            two_stage.search(config, tmp_path / "killed")
    killed = two_stage.search(config, tmp_path / "killed")
    assert killed | {"seconds": 0} == straight | {"seconds": 0}
    assert timeless(tmp_path / "killed") == timeless(tmp_path / "straight")
    replays = [rows(tmp_path / name, "replay.jsonl") for name in ("killed", "straight")]
    assert replays[0] == replays[1]
