"""The search phase: a super-net whose architecture is trained together with its weights.

What is particular to a method is in `methods`. Two-stage and one-stage search share all but their
step, the images they use, and when they end.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from istanas_jax.data.dataset import Dataset, Images, batch_indices
from istanas_jax.data.splits import batch_shapes, divide_training, hold_out
from istanas_jax.devices.parallel import Devices
from istanas_jax.methods import find_method
from istanas_jax.methods.contract import Method
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.networks.variables import init_variables
from istanas_jax.runs.folder import LATENCY
from istanas_jax.runs.loop import Fitted, fit
from istanas_jax.runs.once import add_seconds, kept, once
from istanas_jax.runs.phases import Phase
from istanas_jax.runs.session import Session
from istanas_jax.schedules.nets import super_net, target_net
from istanas_jax.schedules.watch import Rules, Watched
from istanas_jax.space.genotype import Genotype
from istanas_jax.training import optimizers, streams
from istanas_jax.training.evaluation import Evaluator, summary
from istanas_jax.training.objective import make_recipe
from istanas_jax.training.replay_row import ReplayRow
from istanas_jax.training.search_accuracy import accuracy_of
from istanas_jax.training.search_steps import evaluate_search, joint_step
from istanas_jax.training.states import SearchState, Totals, TrainState


class Search(Watched):
    """One network in search; `run` can be called for any number of searches with it.

    Args:
      target: the net whose size a budget limits.
    """

    regime: str  # which batch norms there are
    stage = 0  # which of the method's stages
    origin: ClassVar[dict] = {}  # a search is made of nothing but its config and images
    batches_per_step: int
    update: Any  # the step, one of `search_steps`
    monitored: Images  # the images by which the result is judged
    accuracy_of: str  # their name, see `training.search_accuracy`

    def __init__(
        self,
        config: ConfigDict,
        dataset: Dataset,
        devices: Devices,
        steps_per_epoch: int,
        target: TargetNet,
    ):
        phase = config.search
        self.config, self.dataset, self.devices, self.target = config, dataset, devices, target
        self.batch, self.steps_per_epoch = phase.batch, steps_per_epoch
        self.epochs = self.method.epochs
        self.rules = Rules.of(phase)
        self.net = super_net(config, dataset, self.method, self.regime)
        epochs = self.method.epochs_of_w
        rate = optimizers.learning_rate(
            phase.weights, epochs=epochs, steps_per_epoch=steps_per_epoch
        )
        self.learning_rate = lambda step: float(rate(step % (epochs * steps_per_epoch)))
        self.sgd, self.adam = optimizers.sgd(phase.weights, rate), self.method.adam()
        self._programs(make_recipe(config, phase, dataset, self.epochs * steps_per_epoch))

    def _programs(self, recipe) -> None:
        devices, method = self.devices, self.method
        fixed = {"net": self.net, "recipe": recipe, "method": method}
        step = partial(self.update, sgd=self.sgd, adam=self.adam, **fixed)
        precision = self.config.search.matmul_precision
        self.step = devices.map(step, 2 * self.batches_per_step, precision=precision)
        self._compiled = False
        method.define_programs(self)
        evaluate = partial(evaluate_search, **fixed)
        self.evaluate = Evaluator(evaluate, self.batch, devices, precision=precision)

    def run(self, number: int, session: Session) -> dict:
        """Do one search, or what is left of it; return the genotype found and its accuracy."""
        return self.result(*self.fit(number, session))

    def fit(self, number: int, session: Session) -> Fitted:
        """Search to the end, from where the last checkpoint stands."""
        keep = partial(kept, session, LATENCY)
        self.begin(number, say=session.say, write_replay=session.replay.write, keep=keep)
        return fit(self, self.start(), session)

    def result(self, state: SearchState, seconds: dict[str, float]) -> dict:
        """The content of the search's JSON file."""
        outcome = self.method.outcome(self, state)
        support = outcome.pop("support")
        return {
            "seed": self.seed,
            "genotype": Genotype.from_supports(*support.tolist(), self.net.space).to_dict(),
            **outcome,
            "coefficients": outcome["coefficients"].tolist(),
            "epochs": int(state.step) // self.steps_per_epoch,
            "stopped": self.memory.get("stopped"),  # why it ended early
            "seconds": seconds,
        }

    def begin(
        self,
        number: int,
        *,
        say: Callable[[str], None] = print,
        write_replay: Callable[[ReplayRow], None] = lambda row: None,
        keep: Callable[[Callable[[], dict]], dict] = lambda measure: measure(),
    ) -> None:
        """Prepare the search of this number; `say` and `write_replay` are told how it goes.

        keep: returns what an earlier session measured, or keeps what is measured now.
        """
        self.say, self.write_replay, self.keep = say, write_replay, keep
        self.phase = Phase("search", number, self.stage + 1 if self.method.stages > 1 else None)
        self.name, self.seed = self.phase.title, self.config.seed + number
        self.finished = False
        self.notes: dict = {}
        self.begin_watching()
        self.method.begin_search()

    def start(self) -> SearchState:
        """The state before the first step."""
        key_arch, key_w = jax.random.split(jax.random.key(self.seed))
        return self._state(self.method.first_variables(self, key_arch), key_w)

    def shapes(self) -> SearchState:
        """Shapes and dtypes of the initial state."""
        self.begin(0)
        key = jax.random.key(0)
        return jax.eval_shape(lambda: self._state(self.method.init_variables(key), key))

    def _state(self, arch, key: jax.Array) -> SearchState:
        return self.method.initial_state(self.fresh_weights(arch, key), arch, self.adam)

    def fresh_weights(self, arch, key: jax.Array) -> TrainState:
        x = jnp.zeros((1, *self.monitored.image_shape))
        inputs = self.method.network_inputs(arch)
        variables = init_variables(self.net, key, x, **inputs, train=False)
        return TrainState.create(variables, self.sgd, self.seed)

    def compile(self, state: SearchState) -> None:
        if self._compiled:
            return

        def others() -> None:
            self.method.compile(self, state)
            self.evaluate.compile(state, batch_shapes(self.monitored, self.batch))

        self.step = self.devices.compile_beside(self.lower(state), others)
        self._compiled = True

    def lower(self, state: SearchState):
        """The step for a state of these shapes, to be compiled."""
        shapes = batch_shapes(self.monitored, self.batch) * self.batches_per_step
        return self.step.lower(state, *map(self.devices.split_shape, shapes))

    def before(self, state: SearchState, step: int) -> SearchState:
        return self.method.between_steps(self, state, step)

    def check(self, step: int) -> None:
        self.method.inspect_reports(self, step)

    def progress_note(self) -> str:
        return f"{self.method.progress()}{self.weight_free_in_short()}"

    def end_epoch(self, state: SearchState):
        measured = summary(state.weights.totals)
        if self.batches_per_step == 2 and state.b_totals.images > 0:
            measured |= {f"b_{k}": v for k, v in summary(state.b_totals).items()}
        if self.heldout:
            heldout = self.evaluate(state, self.heldout)
            measured |= {f"heldout_{k}": v for k, v in heldout.items()}
        measured |= self.method.end_epoch(self, state)
        measured |= self.watch(self.method.support_now(state).tolist())
        # Two trees of zeros: a step gives both up, and a buffer can be given up only once.
        for_w, for_b = self.devices.replicate((Totals.zero(), Totals.zero()))
        return state.replace(weights=state.weights.replace(totals=for_w), b_totals=for_b), measured

    def _batches(self, images: Images, epoch: int, stream: int, first: int):
        """This host's parts of an epoch's batches."""
        order = {"seed": self.seed, "epoch": epoch, "stream": stream, "first": first}
        indices = list(batch_indices(len(images), self.batch, **order))
        # The larger of two sets has batches left over: other epochs, in another order, use them.
        parts = map(self.devices.part, indices[: self.steps_per_epoch - first])
        return images.batches(list(parts), seed=(self.seed, epoch, stream))


class TwoStageSearch(Search):
    """Trains the architecture and W on disjoint splits, with any method, for all epochs."""

    def __init__(
        self,
        config: ConfigDict,
        dataset: Dataset,
        devices: Devices,
        target: TargetNet,
        *,
        stage: int = 0,
        found: dict | None = None,
        method: type[Method] | None = None,
        regime: str = "search",
    ):
        """method: replaces the one that the config names; regime: which batch norms there are."""
        self.regime = regime
        self.for_w, self.for_b, self.heldout = divide_training(config, dataset)
        # As in the paper, whose validation half trains b.
        self.monitored = self.heldout or self.for_b
        self.accuracy_of = accuracy_of("two_stage", holds_out=self.heldout is not None)
        steps = min(len(self.for_w), len(self.for_b)) // config.search.batch
        self.stage = stage
        method = method or find_method(config.search.method)
        self.method = method(config, steps, stage=stage, found=found)
        self.batches_per_step, self.update = self.method.batches_per_step, self.method.update
        super().__init__(config, dataset, devices, steps, target)

    def batches(self, epoch: int, first: int):
        for_w = self._batches(self.for_w, epoch, streams.WEIGHTS_ORDER, first)
        if self.batches_per_step == 1:
            yield from for_w
            return
        for_b = self._batches(self.for_b, epoch, streams.ARCHITECTURE_ORDER, first)
        for b, w in zip(for_b, for_w, strict=True):
            yield *b, *w


class StagedSearch:
    """Searches one after the other, each shaped by the result of the one before it."""

    def __init__(
        self,
        config: ConfigDict,
        dataset: Dataset,
        devices: Devices,
        target: TargetNet,
        stages: int,
    ):
        self.make = partial(TwoStageSearch, config, dataset, devices, target)
        self.stages = stages

    def run(self, number: int, session: Session) -> dict:
        """Do all stages of one search; those that an earlier session ended are read."""
        results: list[dict] = []
        for stage in range(self.stages):
            task = self.make(stage=stage, found=results[-1] if results else None)
            phase = Phase("search", number, stage + 1)
            results.append(once(session, phase, partial(task.run, number, session)))
        return results[-1] | {"seconds": add_seconds(results)}


def make_search(
    config: ConfigDict, dataset: Dataset, devices: Devices
) -> TwoStageSearch | StagedSearch:
    """Make the task that runs the searches of a two-stage config."""
    target = target_net(config, config.train, dataset)
    task = TwoStageSearch(config, dataset, devices, target)
    stages = task.method.stages
    return task if stages == 1 else StagedSearch(config, dataset, devices, target, stages)


class OneStageSearch(Search):
    """Algorithm 2 up to the point where all nodes are frozen: b and W share all images."""

    regime, batches_per_step, update = "one_stage", 1, staticmethod(joint_step)

    def __init__(self, config: ConfigDict, dataset: Dataset, devices: Devices):
        self.images, self.heldout = hold_out(config, dataset)
        self.monitored = self.heldout or self.images
        self.accuracy_of = accuracy_of("one_stage", holds_out=self.heldout is not None)
        steps = len(self.images) // config.search.batch
        self.method = find_method(config.search.method)(config, steps)
        target = target_net(config, config.search, dataset)
        super().__init__(config, dataset, devices, steps, target)

    def batches(self, epoch: int, first: int):
        return self._batches(self.images, epoch, streams.WEIGHTS_ORDER, first)

    def before(self, state: SearchState, step: int) -> SearchState:
        before = self.method.frozen
        state = super().before(state, step)
        frozen = self.method.frozen
        if frozen > before:
            epoch = step // self.steps_per_epoch
            nodes = state.arch.frozen.size
            self.say(f"{self.name}: {frozen} of {nodes} nodes are frozen after epoch {epoch}")
            self.finished = frozen == nodes
            if self.finished:
                self.check(step)  # no step follows that it would be looked at with
        return state
