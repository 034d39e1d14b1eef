"""What a config makes a run do, so that two configs can be compared without running them."""

import functools
import hashlib
import inspect
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict
from places import ROOT

from istanas_jax.config.bounds import rule_of, values_of
from istanas_jax.config.files import load_config
from istanas_jax.data.dataset import load_dataset
from istanas_jax.data.splits import batch_shapes
from istanas_jax.devices.parallel import AXIS, Devices
from istanas_jax.methods import find_method
from istanas_jax.methods.tables import SKIP, TableArch, TableMethod
from istanas_jax.schedules.nets import target_net
from istanas_jax.schedules.search import OneStageSearch, TwoStageSearch
from istanas_jax.schedules.training import TrainTask
from istanas_jax.space.spaces import DARTS
from istanas_jax.training.objective import Recipe

SMALL = {
    "space.nodes": 2,
    "search.cells": 1,
    "train.cells": 1,
    "data.max_images": 140,
    "search.weights.learning_rate_schedule": "cosine",  # a constant rate has no last value
    "search.weights.final_learning_rate": 0.001,
    "search.pdarts.epochs": 4,  # so that the dropout decays
}


@functools.cache
def config_of(search: str) -> ConfigDict:
    """A small one: of a search method in two stages, or of one-stage."""
    variant = "one_stage_tiny" if search == "one_stage" else "tiny"
    chosen = [] if search == "one_stage" else [f"--config.search.method={search}"]
    config = load_config(str(ROOT / "configs" / f"digits.py:{variant}"), chosen)
    config = ConfigDict(config.to_dict())
    there = dict(values_of(config))
    for key, value in SMALL.items():
        if key in there:
            config = replaced(config, key, value)
    config.data.color_jitter = (0.4, 0.4, 0.4, 0.2)
    return config


def replaced(config: ConfigDict, key: str, value) -> ConfigDict:
    config = config.copy_and_resolve_references()
    part, _, name = f".{key}".rpartition(".")
    (config[part[1:]] if part else config)[name] = value
    return config


def other(key: str, value):
    """Another value that the key may have."""
    if key.endswith("batch"):
        return 2 * value  # which can be divided among devices
    if key.startswith("search.ista.budget"):
        return 10**9
    good = rule_of(key).good
    return next(new for new in neighbours(value) if new != value and good(new))


def neighbours(value) -> list:
    if isinstance(value, tuple):
        return [(*value[:-1], new) for new in neighbours(value[-1])] if value else [(0.5,)]
    whole = [value + 1, value - 1, value + 2, 2 * value]
    return whole if isinstance(value, int) else [value / 2, value + 0.1]


@functools.cache
def digits(settings: str):
    return load_dataset(ConfigDict(eval(settings)))


def digest(images) -> str:
    parts = (
        [b"none"] if images is None else map(np.ascontiguousarray, (images.images, images.labels))
    )
    return hashlib.sha256(b"".join(map(bytes, parts))).hexdigest()


class Effects:
    """What a config does, by name; each is computed when it is asked for, the cheap ones first."""

    def __init__(self, config: ConfigDict, phase: str):
        self.config = config
        dataset = digits(repr(config.data.to_dict()))
        given = config, dataset, Devices()
        if phase == "train":
            self.task = TrainTask(*given, target_net(config, config.train, dataset))
        elif config.schedule == "one_stage":
            self.task = OneStageSearch(*given)
        else:
            self.task = TwoStageSearch(*given, target_net(config, config.train, dataset))
        self.task.begin(0)
        self.recipe = inspect.unwrap(self.task.step).keywords["recipe"]
        self.names = ["net", "sizes", "seen", "images", "rates", "sgd"]
        self.method = getattr(self.task, "method", None)
        if self.method is not None:
            self.names += ["adam", "times", "inputs", "first", "found"]
            self.names += ["recovery"] if config.search.method == "ista" else []

    def net(self):
        return self.task.net

    def sizes(self):
        task = self.task
        return task.epochs, task.steps_per_epoch, task.batch, getattr(self.method, "stages", 1)

    def seen(self):
        read = read_by_step("search" if self.method else "train")
        return {name: value for name, value in vars(self.recipe).items() if name in read}

    def images(self):
        task = self.task
        parts = ("images", "for_w", "for_b", "heldout")
        found = [digest(getattr(task, part)) for part in parts if hasattr(task, part)]
        first = [np.asarray(part).tobytes() for part in next(iter(task.batches(0, 0)))]
        return found, first, digest(task.dataset.test())

    def rates(self):
        return [self.task.learning_rate(step) for step in range(self.task.steps_per_epoch * 2)]

    def sgd(self):
        return updates(self.task.sgd)

    def adam(self):
        return updates(self.method.adam())

    @functools.cached_property
    def _arch(self):
        """Variables of fixed numbers, so that only what the method makes of them differs."""
        shapes = jax.eval_shape(self.method.init_variables, jax.random.key(0))
        if not isinstance(self.method, TableMethod):
            return jax.tree.map(lambda x: jnp.full(x.shape, 1, x.dtype), shapes)
        draw = np.random.default_rng(0).normal
        alpha = jax.tree.map(lambda x: jnp.asarray(draw(size=x.shape), x.dtype), shapes.alpha)
        return TableArch(alpha, jnp.zeros(shapes.support.shape, jnp.int32))

    def times(self):
        method, steps = self.method, range(self.task.steps_per_epoch * self.task.epochs)
        moving = [method.moves_at(jnp.int32(step)) for step in steps]
        known = ("every", "epochs_of_w", "budget", "warmup")
        return [None if m is None else bool(m) for m in moving], [
            repr(type(value) if name == "budget" else value)
            for name in known
            for value in [getattr(method, name, None)]
        ]

    def inputs(self):
        """What the net runs with, at some steps and in evaluation."""
        if not isinstance(self.method, TableMethod):
            return None
        found = [numbers(self.method.network_inputs(self._arch))]
        for step in (0, 3, 10**7):
            weights = SimpleNamespace(step=jnp.int32(step), key=jax.random.key)
            run = partial(drawn, self.method, self._arch, weights)
            found.append(numbers(jax.vmap(run, axis_name=AXIS)(jnp.zeros(1))))
        return found

    def first(self):
        return str(jax.make_jaxpr(self.method.init_variables)(jax.random.key(0)))

    def found(self):
        """What every stage of a method finds, each starting from the one before it."""
        if not isinstance(self.method, TableMethod):
            return None
        results, method = [], self.method
        judged = {"evaluate": lambda *_: {"accuracy": 0.0, "loss": 0.0}}  # nothing is trained
        search = SimpleNamespace(**vars(self.task) | judged)
        alpha = jax.tree.map(
            lambda x: x.at[..., DARTS.operations.index(SKIP) - DARTS.num_ops].add(2.0),
            self._arch.alpha,
        )
        for stage in range(method.stages):
            if stage:
                more = {"stage": stage, "found": results[-1]}
                method = find_method(self.config.search.method)(self.config, 3, **more)
            state = SimpleNamespace(arch=self._arch.replace(alpha=alpha))
            own = [method.cells, method.epochs, getattr(method, "dropout", None)]
            rates = (
                [float(method.dropout_rate(jnp.int32(s))) for s in range(12)]
                if method.stages > 1
                else []
            )
            results.append(method.outcome(search, state) | {"own": own, "rates": rates})
        return numbers(results)

    def recovery(self):
        arch = self._arch
        state = self.method.initial_state(None, arch, SimpleNamespace(init=lambda b: ()))
        each = jnp.zeros((len(self.task.devices),), jnp.int32)
        return [
            str(jax.make_jaxpr(self.method._freeze)(state)),
            str(jax.make_jaxpr(self.method._recover)((arch, state.uncertified), each)),
        ]


def drawn(method, arch, weights, _):
    mixture = method.network_inputs(arch, weights)["mixture"]
    return mixture._replace(drop=None if mixture.drop is None else mixture.drop[1])


def numbers(tree) -> list:
    return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(tree)]


def updates(optimizer: optax.GradientTransformation) -> list:
    """A parameter after each of a few gradients, one of them large enough to be clipped."""
    params = {"w": jnp.array([1.0, -2.0])}
    state, found = optimizer.init(params), []
    for gradient in ([30.0, -40.0], [0.1, 0.2], [0.2, 0.1]):
        change, state = optimizer.update({"w": jnp.array(gradient)}, state, params)
        params = optax.apply_updates(params, change)
        found.append(change["w"].tolist())  # of which decay is a small part, lost in the sum
    return found


@functools.cache
def read_by_step(phase: str) -> frozenset[str]:
    """The parts of a recipe that the program of a step depends on, found by tracing it."""
    search = "one_stage" if phase == "train" else "ista"
    config = config_of(search)
    if phase == "train":
        config = replaced(config, "train.drop_path", 0.2)
    task = Effects(config, phase).task
    read = set()

    class Watched(Recipe):
        # Recipe's own would read everything.
        __hash__, __eq__, __repr__ = object.__hash__, object.__eq__, object.__repr__

        def __getattribute__(self, name):
            read.add(name)
            return super().__getattribute__(name)

    step = inspect.unwrap(task.step)
    watched = Watched(**vars(step.keywords["recipe"]))
    step = partial(step.func, **step.keywords | {"recipe": watched})
    batches = getattr(task, "batches_per_step", 1)
    images = getattr(task, "monitored", None) or task.images
    shapes = map(task.devices.split_shape, batch_shapes(images, task.batch) * batches)
    jax.make_jaxpr(task.devices.map(step, 2 * batches))(task.shapes(), *shapes)
    return frozenset(read)


def difference(config: ConfigDict, baseline: Effects, phase: str) -> str | None:
    """What another config changes first."""
    try:
        now = Effects(config, phase)
    except ValueError:  # a value that does not go with the others is refused
        return "refused"
    for name in baseline.names:
        if getattr(now, name)() != getattr(baseline, name)():
            return name
    return None
