"""What a search method is: how architecture variables become a network, move, and are read off.

The search phase (`schedules.search.Search`) brings the super-net, images, loop, checkpoints and
reports. A method brings its variables `arch`, a tree of arrays that is part of the checkpoint. Its
pure part, traced into compiled programs, is `training.step_rules.StepRules`, with here

- `init_variables`: the variables at the start;
- `snapshot`: the connections of a genotype read off them, with their weights;
- `update`: the step, one of `training.search_steps` unless the method has its own.

On the host run `first_variables`, `between_steps`, `inspect_report` and `outcome`; most methods
need not change them. `tables.TableMethod` has all that a method with a weight per edge and
operation needs, except how its variables become these weights; CONTRIBUTING.md adds such a one.
"""

from abc import abstractmethod
from collections import deque
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import Array, Bool, Int
from ml_collections import ConfigDict

from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.space.spaces import DARTS, Space, read_space
from istanas_jax.sparse_coding.architecture import tie
from istanas_jax.training import optimizers
from istanas_jax.training.replay_row import ReplayRow
from istanas_jax.training.search_accuracy import named_accuracy
from istanas_jax.training.search_steps import search_step
from istanas_jax.training.states import SearchState, Totals, TrainState
from istanas_jax.training.step_rules import StepRules

Snapshot = dict[str, Array]  # z, support, coefficients and frozen, for both cell types


class Method(StepRules):
    """A search method; the attributes have the values that most methods need."""

    name: str  # in configs
    title: str  # in tables
    batches_per_step = 2  # one for the architecture and one for W; 1: both from the images of W
    update = staticmethod(search_step)
    stages = 1  # searches one after the other, each with a super-net of its own
    dense = False  # whether all candidates run
    frozen = 0  # nodes that no longer change
    watched = True  # its support is what it has found so far, so rules for stopping apply

    def __init__(
        self, config: ConfigDict, steps_per_epoch: int, *, stage: int = 0, found: dict | None = None
    ):
        """Set the method up for a search.

        Args:
          stage: which of several searches, if the method has stages.
          found: the `outcome` of the previous stage.
        """
        self.config, self.steps_per_epoch, self.stage = config, steps_per_epoch, stage
        self.cells, self.epochs = self.sizes()
        self.epochs_of_w = self.epochs  # length of one schedule of W's learning rate
        self.space = read_space(config.space)

    # The network and the optimiser.

    def sizes(self) -> tuple[int, int]:
        """The number of cells of the super-net, and of epochs of the search."""
        return self.config.search.cells, self.config.search.epochs

    def adapt_net(self, net: SuperNet) -> SuperNet:
        """Adapt the super-net of the config to this method."""
        return net

    def adam(self) -> optax.GradientTransformation:
        """The optimiser of the trainable part of the architecture."""
        return optimizers.adam(self.settings.adam)

    @property
    def settings(self) -> ConfigDict:
        """The method's own part of the config."""
        return self.config.search[self.config.search.method]

    def trained(self, arrays):
        """What is trained of arrays of both cell types: one of them if they are alike."""
        return jax.tree.map(lambda x: x[:1], arrays) if self.space.alike else arrays

    def for_both(self, trained):
        """The arrays of both cell types from what is trained."""
        return tie(trained, self.space)

    # Pure, with those of StepRules.

    @abstractmethod
    def init_variables(self, key: jax.Array) -> Any:
        """The variables at the start of a search."""

    def initial_state(
        self, weights: TrainState, arch, adam: optax.GradientTransformation
    ) -> SearchState:
        """The state before the first step."""
        return SearchState(weights, arch, adam.init(self.trainable(arch)), Totals.zero())

    @abstractmethod
    def snapshot(self, arch) -> Snapshot:
        """z of all candidates, the support a genotype would have, its coefficients, and `frozen`.

        Shapes are those of `architecture.ArchState`.
        """

    # These run on the host; `search` is a `schedules.search.Search`.

    def define_programs(self, search) -> None:
        """Define the programs that are compiled besides the step and the evaluation."""
        self._snapshot = search.devices.jit(self.snapshot)

    def compile(self, search, state: SearchState) -> None:
        devices = search.devices
        self._snapshot = devices.compile(self._snapshot.lower(state.arch))

    def begin_search(self) -> None:
        """Forget the previous search: another one follows."""
        self.reports: deque = deque()  # about what was done between steps, not inspected yet

    def first_variables(self, search, key: jax.Array) -> Any:
        """The variables a search starts from; raises if they cannot be used."""
        return jax.jit(self.init_variables)(key)

    def between_steps(self, search, state: SearchState, step: int) -> SearchState:
        """Do whatever is due before this step, and queue a report of it."""
        if step % self.steps_per_epoch == 0:
            self.reports.append((step, None, self._snapshot(state.arch)))
        return state

    def inspect_reports(self, search, step: int) -> None:
        """Inspect and record the queued reports up to this step."""
        while self.reports and self.reports[0][0] <= step:
            at, report, shown = jax.device_get(self.reports.popleft())
            self.record_report(search, at, report, shown)
            if report is not None:
                self.inspect_report(search, at, report)

    def support_now(self, state: SearchState) -> Int[np.ndarray, "cells nodes s"]:
        """The connections of the genotype that a search would give if it ended here."""
        return np.asarray(jax.device_get(self._snapshot(state.arch)["support"]))

    def end_epoch(self, search, state: SearchState) -> dict:
        """What this epoch's row in the metrics says about the architecture."""
        return {}

    def inspect_report(self, search, step: int, report: dict) -> None:
        """Inspect a report that `between_steps` queued; raise if the search cannot go on."""

    def record_report(self, search, step: int, report: dict | None, shown: Snapshot) -> None:
        """Write a row of the replay if connections changed, and at the beginning of every epoch."""
        epoch = step // self.steps_per_epoch
        row: ReplayRow = {"phase": search.name, "step": step, "epoch": epoch, **shown}
        if self.space != DARTS:
            row["space"] = self.space.to_dict()
        row |= search.seen(step, shown["support"].tolist())
        changed = np.zeros(shown["frozen"].shape, bool)
        if report is not None:
            changed = changed_nodes(report["before"], shown["support"], self.space)
            self.changed = int(changed.sum())
            row |= {key: report[key] for key in ("distance", "kkt") if key in report}
            if "supports" in report:  # as recovered, before a budget
                row["budget_decided"] = bool(np.any(shown["support"] != report["supports"][0]))
        if changed.any() or step % self.steps_per_epoch == 0:
            search.write_replay(row | {"changed": changed})

    def progress(self) -> str:
        """A few words beside the progress bar."""
        return ""

    def outcome(self, search, state: SearchState) -> dict:
        """The result of a search: support, coefficients, frozen nodes, loss and accuracy."""
        shown = jax.device_get(jax.jit(self.snapshot)(state.arch))
        measured = search.evaluate(state, search.monitored)
        return {
            "support": shown["support"],
            "frozen": int(shown["frozen"].sum()),
            "coefficients": shown["coefficients"],
            **named_accuracy(search.accuracy_of, measured),
        }


def after_warmup(epochs: int, steps_per_epoch: int, step: Int[Array, ""]) -> Bool[Array, ""] | None:
    """Whether the architecture moves at this step, if only W does for so many epochs."""
    return step >= epochs * steps_per_epoch if epochs else None


def changed_nodes(before, now, space: Space) -> Bool[np.ndarray, "cells nodes"]:
    """Which nodes have other connections in the second support; their order does not count."""
    pairs = zip(*map(space.without_order, (before, now)), strict=True)
    return np.array([[a != b for a, b in zip(*cells, strict=True)] for cells in pairs])
