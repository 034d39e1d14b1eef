"""The training phase: a target net whose architecture is known, from scratch to test accuracy."""

from functools import partial

import jax
from jaxtyping import Array, Float
from ml_collections import ConfigDict

from istanas_jax.data.dataset import Dataset, batch_indices
from istanas_jax.data.splits import batch_shapes, hold_out
from istanas_jax.devices.parallel import Devices
from istanas_jax.networks.counting import count
from istanas_jax.networks.target_net import TargetNet, init_target
from istanas_jax.runs.loop import fit
from istanas_jax.runs.phases import Phase
from istanas_jax.runs.session import Session
from istanas_jax.runs.trained_network import make_trained, save_trained
from istanas_jax.schedules.transfer import is_frozen, part_rates, take_weights
from istanas_jax.training import optimizers, streams
from istanas_jax.training.evaluation import Evaluator, summary
from istanas_jax.training.objective import make_recipe
from istanas_jax.training.states import Totals, TrainState
from istanas_jax.training.steps import evaluate, train_step


class TrainTask:
    """One network in training; `run` can be called for any number of seeds.

    Args:
      name: what its phases are called, one of `phases.NAMES`.
      coefficients: weights of the connections, if they are not absorbed yet.
    """

    def __init__(
        self,
        config: ConfigDict,
        dataset: Dataset,
        devices: Devices,
        net: TargetNet,
        *,
        name: str = "retrain",
        coefficients: Float[Array, "cells nodes s"] | None = None,
    ):
        self.config, self.dataset, self.devices = config, dataset, devices
        self.net, self.phase_name = net, name
        phase = config.train
        self.origin = {"genotype_hash": net.genotype.digest}
        self.epochs, self.batch = phase.epochs, phase.batch
        self.images, self.heldout = hold_out(config, dataset)
        self.steps_per_epoch = len(self.images) // self.batch
        self.parameters = count(net.clone(auxiliary=False), dataset.image_size).parameters
        rate = optimizers.learning_rate(
            phase.weights, epochs=self.epochs, steps_per_epoch=self.steps_per_epoch
        )
        self.learning_rate = lambda step: float(rate(step))
        self.sgd = optimizers.sgd(phase.weights, rate)
        if (rates := part_rates(config)) is not None:
            self.sgd = optimizers.by_part(self.sgd, rates)
        recipe = make_recipe(config, phase, dataset, self.epochs * self.steps_per_epoch)
        self.step = devices.map(
            partial(
                train_step,
                net=net,
                sgd=self.sgd,
                recipe=recipe,
                coefficients=coefficients,
                frozen=is_frozen(config),
            ),
            2,
            precision=phase.matmul_precision,
        )
        self._compiled = False
        self.evaluate = Evaluator(
            partial(evaluate, net=net, recipe=recipe, coefficients=coefficients),
            self.batch,
            devices,
            precision=phase.matmul_precision,
        )

    def run(self, number: int, session: Session) -> dict:
        """Do one training, or what is left of it, and read the test split, the only time."""
        self.begin(number)
        state, seconds = fit(self, self.start(), session)
        trained = make_trained(self.net, state.params, state.stats, self.dataset)
        save_trained(session.workdir.path, trained, number)
        test = self.evaluate(state, self.dataset.test())
        measured = {"seed": self.seed, **self.origin, "seconds": seconds}
        measured |= {f"test_{key}": value for key, value in test.items()}
        if self.heldout:
            heldout = self.evaluate(state, self.heldout)
            measured |= {f"heldout_{key}": value for key, value in heldout.items()}
        return measured

    def begin(self, number: int) -> None:
        """Prepare the training of this number."""
        self.phase = Phase(self.phase_name, number)
        self.name, self.seed = self.phase.title, self.config.seed + number
        self.notes: dict = {}
        self.memory: dict = {}
        self.finished = False

    def start(self) -> TrainState:
        """The state before the first step."""
        variables = init_target(self.net, jax.random.key(self.seed), self.dataset.image_size)
        if "transfer" in self.config.train:
            variables = take_weights(variables, self.config, self.dataset)
        return TrainState.create(variables, self.sgd, self.seed)

    def shapes(self) -> TrainState:
        """Shapes and dtypes of the initial state."""
        self.begin(0)
        return jax.eval_shape(self.start)

    def compile(self, state: TrainState) -> None:
        if not self._compiled:
            shapes = batch_shapes(self.images, self.batch)
            others = partial(self.evaluate.compile, state, shapes)
            self.step = self.devices.compile_beside(self.lower(state), others)
            self._compiled = True

    def lower(self, state: TrainState):
        """The step for a state of these shapes, to be compiled."""
        shapes = map(self.devices.split_shape, batch_shapes(self.images, self.batch))
        return self.step.lower(state, *shapes)

    def batches(self, epoch: int, first: int):
        order = {
            "seed": self.seed,
            "epoch": epoch,
            "stream": streams.TRAINING_ORDER,
            "first": first,
        }
        indices = batch_indices(len(self.images), self.batch, **order)
        parts = list(map(self.devices.part, indices))
        return self.images.batches(parts, seed=(self.seed, epoch, streams.TRAINING_ORDER))

    def before(self, state: TrainState, step: int) -> TrainState:
        return state

    def check(self, step: int) -> None:
        pass

    def progress_note(self) -> str:
        return ""

    def end_epoch(self, state: TrainState):
        measured = summary(state.totals)
        if self.heldout:
            heldout = self.evaluate(state, self.heldout)
            measured |= {f"heldout_{key}": value for key, value in heldout.items()}
        return state.replace(totals=self.devices.replicate(Totals.zero())), measured
