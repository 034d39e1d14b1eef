"""What a search method is: how architecture variables become a network, move, and are read off.

The search phase (`search.Search`) brings the super-net, images, loop, checkpoints and reports. A
method brings its variables `arch`, a tree of arrays that is part of the checkpoint, and says

- `init`: what they are at first;
- `drawn`: what they are in one step, if a step draws something at random;
- `inputs`: what the super-net runs with, a support with coefficients or a table of multipliers;
- `trained`, `at`, `moved`: what of them Adam updates, and what becomes of an update;
- `update`: the step, one of `search_steps` unless the method has its own;
- `snapshot`: the connections of a genotype read off them, with all weights.

These are pure and are traced into compiled programs. `before`, `check` and `outcome` run on the
host between the steps; most methods need not change them.
"""

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import Array, Bool, Int
from ml_collections import ConfigDict

from istanas_jax.methods.replay_row import ReplayRow
from istanas_jax.methods.search_accuracy import named_accuracy
from istanas_jax.networks.supernet import SuperNet
from istanas_jax.training import optimizers
from istanas_jax.training.search_steps import search_step
from istanas_jax.training.states import SearchState, Totals, TrainState

DRAWS = 2  # which of a step's random keys is the method's
Snapshot = dict[str, Array]  # z, support, coefficients and frozen, for both cell types


class Method(ABC):
    """A search method; the attributes are those of most."""

    batches_per_step = 2  # one for the architecture and one for W; 1: both from the images of W
    update = staticmethod(search_step)
    stages = 1  # searches one after the other, each with a super-net of its own
    dense = False  # whether all candidates run
    frozen = 0  # nodes that no longer change
    weights_first = False  # W is updated before the architecture
    watched = True  # its support is what it has found so far, so rules for stopping apply
    batch_statistics = False  # W suits many networks: evaluation normalises by the batch

    def __init__(
        self, config: ConfigDict, steps_per_epoch: int, *, stage: int = 0, found: dict | None = None
    ):
        """stage: which of several; found: what the `outcome` of the one before it was."""
        self.config, self.steps_per_epoch, self.stage = config, steps_per_epoch, stage
        self.cells, self.epochs = self.sizes()
        self.epochs_of_w = self.epochs  # of a schedule of W
        self.nodes, self.s = config.architecture.nodes, config.architecture.s

    # The network and the optimiser.

    def sizes(self) -> tuple[int, int]:
        """Cells of the super-net, and epochs of the search."""
        return self.config.search.cells, self.config.search.epochs

    def net(self, net: SuperNet) -> SuperNet:
        """The super-net of the config, as this method wants it."""
        return net

    def adam(self) -> optax.GradientTransformation:
        """For what is trained of the architecture."""
        return optimizers.adam(self.settings.adam)

    @property
    def settings(self) -> ConfigDict:
        """The method's own part of the config."""
        return self.config.search[self.config.search.method]

    # Pure.

    @abstractmethod
    def init(self, key: jax.Array) -> Any:
        """What the variables are at first."""

    @abstractmethod
    def trained(self, arch) -> Any:
        """What of the variables Adam updates."""

    def at(self, arch, trained) -> Any:
        """The variables with these in their place, to differentiate at."""
        return arch

    def moved(self, arch, trained) -> Any:
        """The variables after an update."""
        return self.at(arch, trained)

    def moving(self, step: Int[Array, ""]) -> Array | None:
        """Whether the architecture is updated at this step; None: at every one."""
        return None

    def drawn(self, arch, weights: TrainState) -> Any:
        """The variables as this step uses them; an update is applied to those before the draw."""
        return arch

    @abstractmethod
    def inputs(self, arch, weights: TrainState | None = None) -> dict[str, Any]:
        """Arguments of the super-net beside the images.

        weights: in training, for its `step` and for `key`s to draw from.
        """

    def inputs_of_w(self, arch, weights: TrainState | None = None) -> dict[str, Any]:
        """The same for the update of W, and for evaluation, if they are to run another way."""
        return self.inputs(arch, weights)

    def kept(self, net: SuperNet, arch, before, after):
        """Of the weights before and after an update those that stay."""
        return after

    def state(self, weights: TrainState, arch, adam: optax.GradientTransformation) -> SearchState:
        """The state before the first step."""
        return SearchState(weights, arch, adam.init(self.trained(arch)), Totals.zero())

    @abstractmethod
    def snapshot(self, arch) -> Snapshot:
        """z of all candidates, the support a genotype would have, its coefficients, and `frozen`.

        Shapes as in `architecture.ArchState`.
        """

    # On the host; `search` is the task of `search.Search`.

    def programs(self, search) -> None:
        """What is to be compiled besides the step and the evaluation."""
        self._snapshot = search.devices.jit(self.snapshot)

    def compile(self, search, state: SearchState) -> None:
        devices = search.devices
        self._snapshot = devices.compile(self._snapshot.lower(state.arch))

    def begin(self) -> None:
        """Another search follows."""
        self.reports: deque = deque()  # of what was done between steps, not looked at yet

    def start(self, search, key: jax.Array) -> Any:
        """The first variables; raises if there are none to begin with."""
        return jax.jit(self.init)(key)

    def before(self, search, state: SearchState, step: int) -> SearchState:
        """Whatever is due between two steps."""
        if step % self.steps_per_epoch == 0:
            self.reports.append((step, None, self._snapshot(state.arch)))
        return state

    def check(self, search, step: int) -> None:
        """Look at the reports up to this step, and record them."""
        while self.reports and self.reports[0][0] <= step:
            at, report, shown = jax.device_get(self.reports.popleft())
            self.record(search, at, report, shown)
            if report is not None:
                self.look(search, at, report)

    def support_now(self, state: SearchState) -> Int[np.ndarray, "cells nodes s"]:
        """The connections of the genotype that a search would give if it ended here."""
        return np.asarray(jax.device_get(self._snapshot(state.arch)["support"]))

    def end_epoch(self, search, state: SearchState) -> dict:
        """What the row of the epoch that ends here says of the architecture."""
        return {}

    def look(self, search, step: int, report: dict) -> None:  # noqa: B027 most need not look
        """At what `before` found."""

    def record(self, search, step: int, report: dict | None, shown: Snapshot) -> None:
        """For the replay: what changed, and how things stand between two epochs."""
        epoch = step // self.steps_per_epoch
        row: ReplayRow = {"phase": search.name, "step": step, "epoch": epoch, **shown}
        row |= search.seen(step, shown["support"].tolist())
        changed = np.zeros(shown["frozen"].shape, bool)
        if report is not None:
            before, now = np.sort(report["before"]), np.sort(shown["support"])
            changed = np.any(before != now, -1)
            self.changed = int(changed.sum())
            row |= {key: report[key] for key in ("distance", "kkt") if key in report}
            if "supports" in report:  # as recovered, before a budget
                row["budget_decided"] = bool(np.any(shown["support"] != report["supports"][0]))
        if changed.any() or step % self.steps_per_epoch == 0:
            search.write_replay(row | {"changed": changed})

    def figures(self) -> str:
        """Beside the progress bar."""
        return ""

    def outcome(self, search, state: SearchState) -> dict:
        """At the end: support and coefficients found, nodes frozen, and how well they do."""
        shown = jax.device_get(jax.jit(self.snapshot)(state.arch))
        figures = search.evaluate(state, search.monitored)
        return {
            "support": shown["support"],
            "frozen": int(shown["frozen"].sum()),
            "coefficients": shown["coefficients"],
            **named_accuracy(search.accuracy_of, figures),
        }


def after_warmup(epochs: int, steps_per_epoch: int, step: Int[Array, ""]) -> Bool[Array, ""] | None:
    """Whether the architecture moves, if W is alone for so many epochs."""
    return step >= epochs * steps_per_epoch if epochs else None
