"""The search phase: a super-net whose b is trained and whose support is recovered from it.

Algorithm 1 (two-stage) and the first part of Algorithm 2 (one-stage) share all but their step, the
images they use, and when they end.
"""

import os
from collections import deque
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from istanas_jax import optimizers
from istanas_jax.architecture import ArchState, Recovery, coefficients, init_architecture
from istanas_jax.budget import Budget
from istanas_jax.cells import init_variables
from istanas_jax.data import Images, batch_indices
from istanas_jax.evaluation import Evaluator, summary
from istanas_jax.genotype import Genotype, random_genotype
from istanas_jax.loop import TrainingError, fit
from istanas_jax.recipes import batch_shapes, divide_training, hold_out, make_recipe
from istanas_jax.session import Session
from istanas_jax.steps import (
    epoch_step,
    evaluate_super,
    joint_step,
    recovery_step,
    search_step,
    snapshot,
)
from istanas_jax.supernet import SuperNet
from istanas_jax.target_net import TargetNet
from istanas_jax.train_state import SearchState, Totals, TrainState

B_STREAM, W_STREAM = 0, 1  # of the order in which images come
DISTURBED = "ISTANAS_TEST_DISTURBED"  # set by a test: a device that recovers something else


class Search:
    """One network in search; `run` gives as many searches with it as wanted."""

    regime: str  # of the batch norms
    batches_per_step: int
    update: Any  # the step, one of `steps`
    monitored: Images  # what the result is judged by

    def __init__(self, session: Session, steps_per_epoch: int, target: TargetNet):
        config, dataset = session.config, session.dataset
        phase = config.search
        self.config, self.session = config, session
        self.epochs, self.batch, self.steps_per_epoch = phase.epochs, phase.batch, steps_per_epoch
        self.every = recovery_interval(config.recovery.every, steps_per_epoch)
        self.net = SuperNet(
            classes=dataset.classes,
            cells=phase.cells,
            channels=phase.channels,
            num_nodes=config.architecture.nodes,
            s=config.architecture.s,
            stem=phase.stem,
            regime=self.regime,
            auxiliary=phase.auxiliary_weight > 0,
            image_channels=dataset.image_channels,
            dtype=phase.dtype,
        )
        limits = (phase.budget.max_parameters, phase.budget.max_multiply_adds)
        self.budget = None
        if any(limits):
            a = config.architecture
            sizes = {"nodes": a.nodes, "s": a.s, "limits": limits}
            self.budget = Budget(target, dataset.image_size, **sizes)
        rate = optimizers.learning_rate(
            phase.weights, epochs=self.epochs, steps_per_epoch=steps_per_epoch
        )
        self.learning_rate = lambda step: float(rate(step))
        self.sgd, self.adam = optimizers.sgd(phase.weights, rate), optimizers.adam(phase.b)
        self._programs(make_recipe(config, phase, dataset, self.epochs * steps_per_epoch))

    def _programs(self, recipe) -> None:
        devices, a = self.session.devices, self.config.architecture
        step = partial(
            type(self).update,
            net=self.net,
            sgd=self.sgd,
            adam=self.adam,
            recipe=recipe,
            implicit_lam=a.lam if a.implicit else None,
        )
        self.step = devices.map(step, 2 * self.batches_per_step)
        self._compiled = False
        self._recover = devices.map(partial(recovery_step, lam=a.lam), 1)
        epsilon = self.config.recovery.epsilon
        self._freeze = devices.jit(partial(epoch_step, epsilon=epsilon), donate_argnums=0)
        self._snapshot = devices.jit(snapshot)
        evaluation = partial(evaluate_super, net=self.net, recipe=recipe)
        self.evaluate = Evaluator(evaluation, self.batch, devices)

    def run(self, number: int) -> dict:
        """One search, or what is left of it: the genotype found and how good it looks."""
        self.begin(number)
        state, seconds = fit(self, self.start(), self.session)
        return self.result(state, seconds)

    def result(self, state: SearchState, seconds: dict[str, float]) -> dict:
        """What is known at the end."""
        heldout = self.evaluate(state, self.monitored)
        arch = jax.device_get(state.arch)
        return {
            "seed": self.seed,
            "genotype": Genotype.from_supports(*supports_of(arch)).to_dict(),
            "heldout_accuracy": heldout["accuracy"],
            "heldout_loss": heldout["loss"],
            "coefficients": np.asarray(coefficients(arch)).tolist(),
            "epochs": int(state.step) // self.steps_per_epoch,
            "frozen": int(arch.frozen.sum()),
            "seconds": seconds,
        }

    def begin(self, number: int) -> None:
        """What follows is the search of this number."""
        self.name, self.seed = f"search {number}", self.config.seed + number
        self.finished = False
        self.notes: dict = {}
        self.reports: deque = deque()  # of recoveries not looked at yet
        self.changed: int | None = None  # nodes, at the last recovery
        self.frozen = 0

    def start(self) -> SearchState:
        """The state before the first step."""
        key_arch, key_w = jax.random.split(jax.random.key(self.seed))
        recovery = jax.jit(self._first_recovery)(key_arch)
        if not recovery.certified:
            raise TrainingError("the first LASSO has no certified solution; change the seed or m")
        return self._state(self._within_budget(recovery.arch), key_w)

    def shapes(self) -> SearchState:
        """Of the state, without making one."""
        self.begin(0)
        key = jax.random.key(0)
        return jax.eval_shape(lambda: self._state(self._first_recovery(key).arch, key))

    def _first_recovery(self, key: jax.Array) -> Recovery:
        a = self.config.architecture
        return init_architecture(key, num_nodes=a.nodes, m=a.m, s=a.s, sigma=a.sigma, lam=a.lam)

    def _state(self, arch: ArchState, key: jax.Array) -> SearchState:
        x = jnp.zeros((1, *self.monitored.image_shape))
        w = coefficients(arch)
        variables = init_variables(self.net, key, x, arch.support, w, train=False)
        weights = TrainState.create(variables, self.sgd, self.seed)
        return SearchState.create(weights, arch, self.adam)

    def _within_budget(self, arch: ArchState) -> ArchState:
        if self.budget is None:
            return arch
        z, support, frozen = jax.device_get((arch.z, arch.support, arch.frozen))
        chosen, decided = self.budget.choose(z, support, frozen)
        if not decided:
            return arch
        nodes = int(np.any(np.sort(chosen) != np.sort(support), -1).sum())
        self.notes["budget_decided"] = self.notes.get("budget_decided", 0) + 1
        self.session.say(f"{self.name}: the budget decided about {nodes} nodes")
        return arch.replace(support=jax.device_put(chosen, arch.support.sharding))

    def compile(self, state: SearchState) -> None:
        if self._compiled:
            return
        compile_ = self.session.devices.compile
        self.step = compile_(self.lower(state))
        self._disturbance = self._disturb()
        self._recover = compile_(self._recover.lower(state, self._disturbance))
        self._freeze = compile_(self._freeze.lower(state))
        self._snapshot = compile_(self._snapshot.lower(state.arch))
        self.evaluate.compile(state, batch_shapes(self.monitored, self.batch))
        self._compiled = True

    def lower(self, state: SearchState):
        """The step for a state of these shapes, to be compiled."""
        shapes = batch_shapes(self.monitored, self.batch) * self.batches_per_step
        return self.step.lower(state, *map(self.session.devices.split_shape, shapes))

    def _disturb(self) -> Float[Array, " devices"]:
        """Added to b when z is recovered from it: 0, but in a test 1 on one device."""
        devices = self.session.devices
        disturbance = np.zeros(len(devices), np.float32)
        if disturbed := os.environ.get(DISTURBED):
            disturbance[int(disturbed)] = 1
        return devices.split(devices.part(disturbance)).squeeze(1)

    def before(self, state: SearchState, step: int) -> SearchState:
        """Recovery when it is due; freezing between epochs."""
        report = None
        if step and step % self.every == 0:
            state, report = self._recover(state, self._disturbance)
            if self.config.search.sync_norms:
                # Then operations wait for each other: devices that disagree would wait forever.
                self._agreed(step, jax.device_get(report["supports"]))
            state = state.replace(arch=self._within_budget(state.arch))
        between_epochs = step % self.steps_per_epoch == 0
        # A z that was not recovered in this epoch has not come to rest.
        recovered = step // self.every > (step - self.steps_per_epoch) // self.every
        if step and between_epochs and recovered:
            state, distance = self._freeze(state)
            self.notes["distance"] = np.asarray(distance).tolist()
            self.frozen = self.notes["frozen"] = int(np.sum(state.arch.frozen))
        if report is not None or between_epochs:
            self.reports.append((step, report, self._snapshot(state.arch)))
        return state

    def check(self, step: int) -> None:
        """Look at the recoveries up to this step."""
        limit = self.config.recovery.max_uncertified
        while self.reports and self.reports[0][0] <= step:
            at, report, shown = jax.device_get(self.reports.popleft())
            self._record(at, report, shown)
            if report is None:
                continue
            self._agreed(at, report["supports"])
            self.changed = int(report["changed"])
            self.notes["changed"] = self.notes.get("changed", 0) + self.changed
            if uncertified := int(report["uncertified"]):
                said = f"the LASSO before step {at} has no certified solution"
                if uncertified > limit:
                    raise TrainingError(
                        f"{self.name}: {said}, nor had the {uncertified - 1} before it"
                    )
                kkt = report["kkt"].max()
                self.session.say(f"{self.name}: {said} (KKT residual {kkt:.2g} lambda)")

    def _record(self, step: int, report: dict | None, shown: dict) -> None:
        """For the replay: what a recovery changed, and how things stand between two epochs."""
        row = {"phase": self.name, "step": step, "epoch": step // self.steps_per_epoch, **shown}
        changed = np.zeros(shown["frozen"].shape, bool)
        if report is not None:
            before, now = np.sort(report["before"]), np.sort(shown["support"])
            changed = np.any(before != now, -1)
            row |= {key: report[key] for key in ("distance", "kkt")}
        if changed.any() or step % self.steps_per_epoch == 0:
            self.session.replay.write(row | {"changed": changed})

    def _agreed(self, step: int, supports: Int[np.ndarray, "devices cells nodes s"]) -> None:
        """Raise if devices recovered different supports: from there on they would drift apart."""
        different = np.flatnonzero((supports != supports[0]).any((1, 2, 3)))
        if len(different):
            found = [
                f"{supports[i].tolist()} (host {device.process_index}, device {device.id})"
                for i, device in enumerate(self.session.devices.devices)
                if i in (0, different[0])
            ]
            raise TrainingError(
                f"{self.name}: the recovery before step {step} gave {' and '.join(found)}: all "
                "devices must come to the same support"
            )

    def figures(self) -> str:
        if self.changed is None:
            return ""
        frozen = f", {self.frozen} frozen" if self.frozen else ""
        return f"  {self.changed} node{'s' * (self.changed != 1)} changed{frozen}"

    def end_epoch(self, state: SearchState):
        figures = summary(state.weights.totals)
        if self.batches_per_step == 2:
            figures |= {f"b_{k}": v for k, v in summary(state.b_totals).items()}
        if self.heldout:
            heldout = self.evaluate(state, self.heldout)
            figures |= {f"heldout_{k}": v for k, v in heldout.items()}
        # Two trees of zeros: a step gives both up, and a buffer can be given up only once.
        for_w, for_b = self.session.devices.replicate((Totals.zero(), Totals.zero()))
        return state.replace(weights=state.weights.replace(totals=for_w), b_totals=for_b), figures

    def _batches(self, images: Images, epoch: int, stream: int, first: int):
        """This host's parts of an epoch's batches."""
        order = {"seed": self.seed, "epoch": epoch, "stream": stream, "first": first}
        indices = list(batch_indices(len(images), self.batch, **order))
        # Of two sets the larger has batches left over: they come in another epoch's order.
        parts = map(self.session.devices.part, indices[: self.steps_per_epoch - first])
        return images.batches(list(parts), seed=(self.seed, epoch, stream))


class TwoStageSearch(Search):
    """Algorithm 1: b and W on images of their own, for all epochs."""

    regime, batches_per_step, update = "search", 2, staticmethod(search_step)

    def __init__(self, session: Session, target: TargetNet):
        self.for_w, self.for_b, self.heldout = divide_training(session.config, session.dataset)
        # As in the paper, whose validation half trains b.
        self.monitored = self.heldout or self.for_b
        smaller = min(len(self.for_w), len(self.for_b))
        super().__init__(session, smaller // session.config.search.batch, target)

    def batches(self, epoch: int, first: int):
        for_b = self._batches(self.for_b, epoch, B_STREAM, first)
        for_w = self._batches(self.for_w, epoch, W_STREAM, first)
        for b, w in zip(for_b, for_w, strict=True):
            yield *b, *w


class OneStageSearch(Search):
    """Algorithm 2 up to the point where all nodes are frozen: b and W share all images."""

    regime, batches_per_step, update = "one_stage", 1, staticmethod(joint_step)

    def __init__(self, session: Session):
        config = session.config
        self.images, self.heldout = hold_out(config, session.dataset)
        self.monitored = self.heldout or self.images
        steps = len(self.images) // config.search.batch
        super().__init__(session, steps, one_stage_net(session, config.search))

    def batches(self, epoch: int, first: int):
        return self._batches(self.images, epoch, W_STREAM, first)

    def before(self, state: SearchState, step: int) -> SearchState:
        before = self.frozen
        state = super().before(state, step)
        if self.frozen > before:
            epoch = step // self.steps_per_epoch
            nodes = state.arch.frozen.size
            self.session.say(
                f"{self.name}: {self.frozen} of {nodes} nodes are frozen after epoch {epoch}"
            )
            self.finished = self.frozen == nodes
            if self.finished:
                self.check(step)  # no step follows that it would be looked at with
        return state


def one_stage_net(session: Session, phase, genotype: Genotype | None = None) -> TargetNet:
    """The target net of a one-stage phase."""
    a, dataset = session.config.architecture, session.dataset
    return TargetNet(
        genotype=genotype or random_genotype(0, num_nodes=a.nodes, s=a.s),
        classes=dataset.classes,
        cells=phase.cells,
        channels=phase.channels,
        stem=phase.stem,
        regime="one_stage",
        auxiliary=phase.auxiliary_weight > 0,
        image_channels=dataset.image_channels,
        dtype=phase.dtype,
    )


def supports_of(arch: ArchState) -> list[list[tuple[int, ...]]]:
    """Of the normal and the reduction cell, per node its flat indices, strongest first."""
    return [[tuple(map(int, node)) for node in cell] for cell in np.asarray(arch.support)]


def recovery_interval(every: str | int, steps_per_epoch: int) -> int:
    """Steps between two recoveries."""
    named = {"epoch": steps_per_epoch, "step": 1}
    if every in named:
        return named[every]
    if str(every).isdigit() and int(every) > 0:
        return int(every)
    raise ValueError(f'recovery.every is {every!r}, not "epoch", "step" or a number of steps')
