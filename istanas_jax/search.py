"""The search phase: Algorithm 1 on a super-net, and the genotype it ends with."""

from collections import deque
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from istanas_jax import optimizers
from istanas_jax.architecture import coefficients, init_architecture
from istanas_jax.cells import init_variables
from istanas_jax.data import batch_indices
from istanas_jax.evaluation import Evaluator, summary
from istanas_jax.genotype import Genotype
from istanas_jax.loop import TrainingError, fit
from istanas_jax.recipes import divide_training, make_recipe
from istanas_jax.session import Session
from istanas_jax.steps import epoch_step, evaluate_super, recovery_step, search_step
from istanas_jax.supernet import SuperNet
from istanas_jax.train_state import SearchState, Totals, TrainState

B_STREAM, W_STREAM = 0, 1  # of the order in which images come


class SearchTask:
    """One network in search; `run` gives as many searches with it as wanted."""

    def __init__(self, session: Session):
        config, dataset = session.config, session.dataset
        phase = config.search
        self.config, self.phase, self.session = config, phase, session
        self.epochs, self.batch = phase.epochs, phase.batch
        self.for_w, self.for_b, self.heldout = divide_training(config, dataset)
        smaller = min(len(self.for_w.labels), len(self.for_b.labels))
        self.steps_per_epoch = smaller // self.batch
        self.every = recovery_interval(config.recovery.every, self.steps_per_epoch)
        self.net = SuperNet(
            classes=dataset.classes,
            cells=phase.cells,
            channels=phase.channels,
            num_nodes=config.architecture.nodes,
            s=config.architecture.s,
            stem=phase.stem,
            auxiliary=phase.auxiliary_weight > 0,
            image_channels=dataset.image_channels,
            dtype=phase.dtype,
        )
        rate = optimizers.learning_rate(
            phase.weights, epochs=self.epochs, steps_per_epoch=self.steps_per_epoch
        )
        self.learning_rate = lambda step: float(rate(step))
        self.sgd, self.adam = optimizers.sgd(phase.weights, rate), optimizers.adam(phase.b)
        recipe = make_recipe(config, phase, dataset, self.epochs * self.steps_per_epoch)
        lam = config.architecture.lam
        self._programs(recipe, lam)

    def _programs(self, recipe, lam: float) -> None:
        devices = self.session.devices
        step = partial(
            search_step,
            net=self.net,
            sgd=self.sgd,
            adam=self.adam,
            recipe=recipe,
            implicit_lam=lam if self.config.architecture.implicit else None,
        )
        self.step = devices.map(step, 4)
        self._compiled = False
        self._recover = devices.jit(partial(recovery_step, lam=lam), donate_argnums=0)
        epsilon = self.config.recovery.epsilon
        self._freeze = devices.jit(partial(epoch_step, epsilon=epsilon), donate_argnums=0)
        self.evaluate = Evaluator(
            partial(evaluate_super, net=self.net, recipe=recipe), self.batch, devices
        )

    def run(self, number: int) -> dict:
        """One search, or what is left of it: the genotype found and how good it looks."""
        self.begin(number)
        state, seconds = fit(self, self.start(), self.session)
        monitored = self.heldout or self.for_b  # as the paper, whose validation half trains b
        heldout = self.evaluate(state, monitored)
        arch = jax.device_get(state.arch)
        supports = [[tuple(map(int, node)) for node in cell] for cell in arch.support]
        return {
            "seed": self.seed,
            "genotype": Genotype.from_supports(*supports).to_dict(),
            "heldout_accuracy": heldout["accuracy"],
            "heldout_loss": heldout["loss"],
            "coefficients": np.asarray(coefficients(arch)).tolist(),
            "frozen": int(arch.frozen.sum()),
            "seconds": seconds,
        }

    def begin(self, number: int) -> None:
        """What follows is the search of this number."""
        self.name, self.seed = f"search {number}", self.config.seed + number
        self.notes: dict = {}
        self.reports: deque = deque()  # of recoveries not looked at yet
        self.changed: int | None = None  # nodes, at the last recovery

    def start(self) -> SearchState:
        """The state before the first step."""
        a = self.config.architecture
        key_arch, key_w = jax.random.split(jax.random.key(self.seed))
        init = partial(init_architecture, num_nodes=a.nodes, m=a.m, s=a.s, sigma=a.sigma, lam=a.lam)
        recovery = jax.jit(init)(key_arch)
        if not recovery.certified:
            raise TrainingError("the first LASSO has no certified solution; change the seed or m")
        arch = recovery.arch
        x = jnp.zeros((1, *self.for_w.images.shape[1:]))
        w = coefficients(arch)
        variables = init_variables(self.net, key_w, x, arch.support, w, train=False)
        weights = TrainState.create(variables, self.sgd, self.seed)
        return SearchState.create(weights, arch, self.adam)

    def compile(self, state: SearchState) -> None:
        if self._compiled:
            return
        batch = next(self.batches(0, 0))
        split = map(self.session.devices.split, batch)
        self.step = self.step.lower(state, *split).compile()
        self._recover = self._recover.lower(state).compile()
        self._freeze = self._freeze.lower(state).compile()
        self.evaluate.compile(state, self.for_b)
        self._compiled = True

    def batches(self, epoch: int, first: int):
        orders = [
            batch_indices(
                len(split.labels),
                self.batch,
                seed=self.seed,
                epoch=epoch,
                stream=stream,
                first=first,
            )
            for split, stream in ((self.for_b, B_STREAM), (self.for_w, W_STREAM))
        ]
        # The larger part has batches left over: they come in another epoch's order.
        for _, b, w in zip(range(first, self.steps_per_epoch), *orders, strict=False):
            yield *self.for_b.take(b), *self.for_w.take(w)

    def before(self, state: SearchState, step: int) -> SearchState:
        if step and step % self.every == 0:
            state, report = self._recover(state)
            self.reports.append((step, report))
        if step and step % self.steps_per_epoch == 0:
            state, distance = self._freeze(state)
            self.notes["distance"] = np.asarray(distance).tolist()
            self.notes["frozen"] = int(np.sum(state.arch.frozen))
        return state

    def check(self, step: int) -> None:
        """Look at the recoveries up to this step."""
        limit = self.config.recovery.max_uncertified
        while self.reports and self.reports[0][0] <= step:
            at, report = self.reports.popleft()
            report = jax.device_get(report)
            self.changed = int(report["changed"])
            self.notes["changed"] = self.notes.get("changed", 0) + self.changed
            if uncertified := int(report["uncertified"]):
                said = f"the LASSO before step {at} has no certified solution"
                if uncertified > limit:
                    raise TrainingError(
                        f"{self.name}: {said}, nor had the {uncertified - 1} before it"
                    )
                self.session.say(f"{self.name}: {said} (KKT residual {report['kkt']:.2g} lambda)")

    def figures(self) -> str:
        if self.changed is None:
            return ""
        return f"  {self.changed} node{'s' * (self.changed != 1)} changed"

    def end_epoch(self, state: SearchState):
        figures = summary(state.weights.totals)
        figures |= {f"b_{k}": v for k, v in summary(state.b_totals).items()}
        if self.heldout:
            heldout = self.evaluate(state, self.heldout)
            figures |= {f"heldout_{k}": v for k, v in heldout.items()}
        # Two trees of zeros: a step gives both up, and a buffer can be given up only once.
        for_w, for_b = self.session.devices.replicate((Totals.zero(), Totals.zero()))
        return state.replace(weights=state.weights.replace(totals=for_w), b_totals=for_b), figures


def recovery_interval(every: str | int, steps_per_epoch: int) -> int:
    """Steps between two recoveries."""
    named = {"epoch": steps_per_epoch, "step": 1}
    if every in named:
        return named[every]
    if str(every).isdigit() and int(every) > 0:
        return int(every)
    raise ValueError(f'recovery.every is {every!r}, not "epoch", "step" or a number of steps')
