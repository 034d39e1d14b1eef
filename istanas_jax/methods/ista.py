"""ISTA-NAS: b is trained, and the support is recovered from it by a LASSO.

The network in search has the connections in the support and no others: the only method here whose
super-net runs sparse at every step.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict

from istanas_jax.methods.budget import budget_of
from istanas_jax.methods.contract import Method, Snapshot, after_warmup, changed_nodes
from istanas_jax.methods.ista_recovery import (
    IstaState,
    Recovered,
    check_agreement,
    distance_moved,
    epoch_step,
    recovery_interval,
    recovery_step,
)
from istanas_jax.networks.supernet.net import SuperNet, keep_inactive
from istanas_jax.sparse_coding.architecture import (
    ArchState,
    Coding,
    Freezing,
    coefficients,
    draw_architecture,
    draw_support,
    move,
    settled,
    straight_coefficients,
)
from istanas_jax.training import streams
from istanas_jax.training.errors import TrainingError
from istanas_jax.training.search_steps import joint_step
from istanas_jax.training.states import Totals, TrainState

NO_EXPLORATION = ConfigDict(
    {
        "draw": False,
        "compare": False,
        "shared_weights": False,
        "one_loss": False,
        "warmup_epochs": 0,
    }
)


class Ista(Method):
    """Algorithm 1, and Algorithm 2 up to the point where all nodes are frozen.

    What differs from them is `search.ista.explore` of a two-stage config: every step runs a support
    drawn at random instead of the one recovered last, so that b gets the gradient of every
    candidate and W is trained for all of them.
    """

    name = "ista"
    title = "two-stage ISTA-NAS"

    def __init__(self, config, steps_per_epoch: int, **stage):
        super().__init__(config, steps_per_epoch, **stage)
        own = self.settings
        one_stage = config.schedule == "one_stage"
        self.coding = Coding(
            space=self.space,
            m=own.m,
            lam=own.lam,
            columns=own.columns,
            signed=own.signed,
            distinct=own.distinct or self.space.distinct,
            whole_distance=not one_stage or own.freeze.distance == "all",
        )
        self.implicit = own.implicit
        self.every = recovery_interval(own.recovery.every, steps_per_epoch)
        self.max_uncertified = own.recovery.max_uncertified
        self.weights_first = not one_stage and own.first_update == "w"
        # Algorithm 1 knows no frozen nodes.
        rule = (own.freeze.rule, own.freeze.epsilon) if one_stage else ("never", 0.0)
        self.freezing = Freezing(*rule)
        self.budget = None
        explore = own.get("explore", NO_EXPLORATION)
        self.explores = self.batch_statistics = explore.draw
        self.compare, self.shared = explore.compare, explore.shared_weights
        self.warmup = explore.warmup_epochs
        if explore.one_loss:
            self.batches_per_step, self.update = 1, joint_step

    def adapt_net(self, net: SuperNet) -> SuperNet:
        return net.clone(shared=self.shared)

    def moves_at(self, step: Int[Array, ""]) -> Array | None:
        return after_warmup(self.warmup, self.steps_per_epoch, step)

    def init_variables(self, key: jax.Array) -> ArchState:
        return draw_architecture(key, self.coding, sigma=self.settings.sigma)

    def trainable(self, arch: ArchState) -> Float[Array, "cells nodes m"]:
        return self.trained(arch.b)

    def with_trainable(self, arch: ArchState, trainable) -> ArchState:
        return arch.replace(b=self.for_both(trainable))

    def after_update(self, arch: ArchState, trainable) -> ArchState:
        return move(arch, self.for_both(trainable))

    def sample(self, arch: ArchState, weights: TrainState) -> ArchState:
        if not self.explores:
            return arch
        return arch.replace(support=draw_support(weights.key(streams.METHOD), self.coding))

    def network_inputs(
        self, arch: ArchState, weights: TrainState | None = None
    ) -> dict[str, Array]:
        weigh = self._coefficients
        if self.explores:
            weigh = partial(straight_coefficients, compare=self.compare, space=self.space)
        return {"support": arch.support, "coefficients": weigh(arch)}

    def _coefficients(self, arch: ArchState) -> Float[Array, "cells nodes s"]:
        """The coefficients, the same in training, in evaluation and in the result."""
        lam = self.coding.lam if self.implicit else None
        return coefficients(arch, implicit_lam=lam, space=self.space)

    def keep_inactive_weights(self, net: SuperNet, arch: ArchState, before, after):
        """Only active weights and their momentum move; in Algorithm 2, scales once frozen."""
        return keep_inactive(net, arch.support, before, after, frozen=arch.frozen)

    def initial_state(self, weights: TrainState, arch: ArchState, adam) -> IstaState:
        # A copy: a step gives both up, and a buffer can be given up only once.
        z_epoch, none = jnp.copy(settled(arch, self.coding)), jnp.zeros((), jnp.int32)
        return IstaState(
            weights, arch, adam.init(self.trainable(arch)), Totals.zero(), z_epoch, none
        )

    def snapshot(self, arch: ArchState) -> Snapshot:
        return {
            "z": arch.z,
            "support": arch.support,
            "coefficients": self._coefficients(arch),
            "frozen": arch.frozen,
        }

    def define_programs(self, search) -> None:
        super().define_programs(search)
        devices, own = search.devices, self.settings
        # Not all of the state, nor used up: the end of an epoch looks at what will be recovered.
        self._recover = devices.map(partial(recovery_step, coding=self.coding), 1, donate=False)
        self._recovery_compiled = False
        numbers = np.arange(len(devices), dtype=np.int32)
        self._device_numbers = devices.split(devices.part(numbers)).squeeze(1)
        self._distance = devices.jit(partial(distance_moved, coding=self.coding))
        rest = partial(epoch_step, coding=self.coding, freezing=self.freezing)
        self._freeze = devices.jit(rest, donate_argnums=0)
        self.budget = budget_of(own, search, self.coding, timed=False)

    def compile(self, search, state: IstaState) -> None:
        super().compile(search, state)
        compile_ = search.devices.compile
        self._compile_recovery(search.devices, (state.arch, state.uncertified))
        self._distance = compile_(self._distance.lower(state.arch, state.z_epoch))
        self._freeze = compile_(self._freeze.lower(state))

    def _compile_recovery(self, devices, of: tuple[ArchState, Array]) -> None:
        """Compile the recovery once: the first of a search is the same program as the others."""
        if not self._recovery_compiled:
            self._recovery_compiled = True
            self._recover = devices.compile(self._recover.lower(of, self._device_numbers))

    def begin_search(self) -> None:
        super().begin_search()
        self.changed: int | None = None  # nodes, at the last recovery
        self.frozen = 0
        self._next: Recovered | None = None  # a recovery that the end of an epoch has already done

    def first_variables(self, search, key: jax.Array) -> ArchState:
        if self.settings.budget.max_latency_ms:
            # Only now: programs can be defined and compiled without measuring anything.
            self.budget = budget_of(self.settings, search, self.coding, timed=True)
        drawn = super().first_variables(search, key)
        of = search.devices.replicate((drawn, jnp.zeros((), jnp.int32)))
        self._compile_recovery(search.devices, of)
        (arch, uncertified), report = self._recover(of, self._device_numbers)
        check_agreement(search, 0, jax.device_get(report["supports"]))
        if uncertified:
            raise TrainingError("the first LASSO has no certified solution; change the seed or m")
        arch = jax.tree.map(jnp.asarray, jax.device_get(arch))
        return self._told(search, *self._within_budget(arch))

    def _within_budget(self, arch: ArchState) -> tuple[ArchState, int]:
        """Replace the support by one within the budget; also return how many nodes changed."""
        if self.budget is None:
            return arch, 0
        z, support, frozen = jax.device_get((arch.z, arch.support, arch.frozen))
        strength = z if self.coding.signed else np.abs(z)
        chosen, decided = self.budget.choose(strength, support, frozen)
        if not decided:
            return arch, 0
        nodes = int(changed_nodes(support, chosen, self.space).sum())
        return arch.replace(support=jax.device_put(chosen, arch.support.sharding)), nodes

    def _told(self, search, arch: ArchState, nodes: int) -> ArchState:
        """Say that the budget changed so many nodes, if any; return `arch` as it is."""
        if nodes:
            search.notes["budget_decided"] = search.notes.get("budget_decided", 0) + 1
            search.say(f"{search.name}: the budget changed the connections of {nodes} nodes")
        return arch

    def _recovered(self, state: IstaState, step: int) -> Recovered:
        """The recovery that is due before this step; done once, whoever asks for it."""
        if self._next is None or self._next.step != step:
            of = state.arch, state.uncertified
            (arch, uncertified), report = self._recover(of, self._device_numbers)
            arch, nodes = self._within_budget(arch)
            self._next = Recovered(step, arch, uncertified, report, nodes)
        return self._next

    def between_steps(self, search, state: IstaState, step: int) -> IstaState:
        """Recover z when it is due; freeze nodes between epochs."""
        report = None
        if step and step % self.every == 0:
            state, report = self._recover_now(search, state, step)
        between_epochs = step % self.steps_per_epoch == 0
        if step and between_epochs and self._recovered_in_epoch(step):
            state, _ = self._freeze(state)
            self.frozen = search.notes["frozen"] = int(np.sum(state.arch.frozen))
        if report is not None or between_epochs:
            self.reports.append((step, report, self._snapshot(state.arch)))
        return state

    def _recover_now(self, search, state: IstaState, step: int) -> tuple[IstaState, dict]:
        """Update z and support by the recovery before this step; also return its report."""
        found, self._next = self._recovered(state, step), None
        if self.config.search.sync_norms:
            # Then operations wait for each other: devices that disagree would wait forever.
            check_agreement(search, step, jax.device_get(found.report["supports"]))
        arch = self._told(search, found.arch, found.nodes)
        return state.replace(arch=arch, uncertified=found.uncertified), found.report

    def outcome(self, search, state: IstaState) -> dict:
        """The result after a last recovery, so that the last updates of b count too."""
        if not np.all(state.arch.frozen):
            step = int(state.step)
            state, report = self._recover_now(search, state, step)
            self.reports.append((step, report, self._snapshot(state.arch)))
            self.inspect_reports(search, step)
        return super().outcome(search, state)

    def _recovered_in_epoch(self, step: int) -> bool:
        """Whether z was recovered in the epoch that ends here; if not, nothing can freeze."""
        return step // self.every > (step - self.steps_per_epoch) // self.every

    def support_now(self, state: IstaState) -> Int[np.ndarray, "cells nodes s"]:
        """The support after the recovery that is due, if one is."""
        step = int(state.step)
        if step % self.every == 0:
            state = state.replace(arch=self._recovered(state, step).arch)
        return super().support_now(state)

    def end_epoch(self, search, state: IstaState) -> dict:
        """How far each z moved in this epoch, which decides about freezing.

        The recovery that is due after the epoch counts.
        """
        step = int(state.step)
        if not self._recovered_in_epoch(step):
            return {}
        arch = self._recovered(state, step).arch if step % self.every == 0 else state.arch
        return {"distance": np.asarray(self._distance(arch, state.z_epoch)).tolist()}

    def inspect_report(self, search, step: int, report: dict) -> None:
        """Raise if the recovery cannot be trusted."""
        check_agreement(search, step, report["supports"])
        search.notes["changed"] = search.notes.get("changed", 0) + self.changed
        if uncertified := int(report["uncertified"]):
            said = f"the LASSO before step {step} has no certified solution"
            if uncertified > self.max_uncertified:
                raise TrainingError(
                    f"{search.name}: {said}, nor had the {uncertified - 1} before it"
                )
            kkt = report["kkt"].max()
            search.say(f"{search.name}: {said} (KKT residual {kkt:.2g} lambda)")

    def progress(self) -> str:
        if self.changed is None:
            return ""
        frozen = f", {self.frozen} frozen" if self.frozen else ""
        return f"  {self.changed} node{'s' * (self.changed != 1)} changed{frozen}"
