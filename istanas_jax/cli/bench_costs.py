"""The benchmarks of what things cost: they parse and dispatch, nothing else."""

import sys
from functools import partial

from istanas_jax.cli.arguments import add_benchmark, positive, seconds, show, size
from istanas_jax.config.files import load_config

_say = partial(print, file=sys.stderr, flush=True)
CIFAR = "configs/cifar10_two_stage.py"


def add_commands(benchmarks) -> None:
    """Add `bench ops`, `latency`, `grow` and `start`."""
    for add in (_add_ops, _add_latency, _add_grow, _add_start):
        add(benchmarks)


def _add_ops(benchmarks) -> None:
    ops = add_benchmark(
        benchmarks,
        "ops",
        _ops,
        "each operation alone: forward, backward, against a copy and against PyTorch",
        "Times every operation of the search space by itself, forward and with its backward pass, "
        "at each shape (channels, pixels, stride) that the config's search network has. Beside "
        "each time: which share of the memory's bandwidth the operation uses, measured by a copy "
        "in the same run (near 100 % there is nothing left to gain), and the time divided by that "
        "of eager PyTorch where torch is installed. An operation that is far from both is the one "
        f"to work on. Without --config: the operations of {CIFAR}.",
        config="",
    )
    ops.add_argument("--batch", type=size("batch"), help="images; by default the config's")
    ops.add_argument(
        "--operations", default="", metavar="NAME,NAME", help="only these; by default all"
    )
    ops.add_argument(
        "--seconds", type=seconds, metavar="S", help="how long each is timed; by default 0.2"
    )
    ops.add_argument(
        "--workdir",
        metavar="RUN",
        help="measure the operations of the run in this folder, instead of --config, and leave "
        "operations.json there: the run's report shows it",
    )


def _ops(args) -> int:
    from istanas_jax.bench.costs import operations

    if args.workdir and (args.config or args.overrides):
        raise ValueError("bench ops takes --config or --workdir, not both: a run has a config")
    workdir = None
    if args.workdir:
        config, workdir = operations.config_of_run(args.workdir)
    else:
        config = load_config(args.config or CIFAR, args.overrides)
    names = tuple(filter(None, args.operations.split(",")))
    how = {"batch": args.batch, "only": names, "seconds": args.seconds}
    results = operations.run(config, **how, say=_say)
    if workdir:
        operations.write(workdir, results)
    return show(args, results, operations.table)


def _add_latency(benchmarks) -> None:
    latency = add_benchmark(
        benchmarks,
        "latency",
        _latency,
        "predicted against measured latency of networks, and whether a budget is kept",
        "Times every operation at every shape of the config's target network, as a search with "
        "search.ista.budget.max_latency_ms does, and predicts from that table how long networks of "
        "random cells take to classify images; then times them too. Prints both and Spearman's "
        "correlation of their ranks. Last, lets budgets choose cells and times what they chose. "
        "Most of the time goes into compiling the networks.",
        config=f"{CIFAR}:small",
    )
    latency.add_argument("--batch", type=size("batch"), default=1, help="images at once")
    latency.add_argument("--nets", type=positive, default=20, help="networks of random cells")
    latency.add_argument("--budgets", type=positive, default=3, help="cells that budgets choose")
    latency.add_argument("--seed", type=int, default=0)
    latency.add_argument(
        "--seconds", type=seconds, metavar="S", help="how long each is timed; by default 0.2"
    )


def _latency(args) -> int:
    from istanas_jax.bench.costs import latency

    how = {"nets": args.nets, "budgets": args.budgets, "seed": args.seed, "seconds": args.seconds}
    config = load_config(args.config, args.overrides)
    return show(args, latency.run(config, batch=args.batch, **how, say=_say), latency.table)


def _add_grow(benchmarks) -> None:
    grow = add_benchmark(
        benchmarks,
        "grow",
        _grow,
        "how a search step's time, compilation and memory grow with each size",
        "Measures the config's search step with one size changed at a time: batch, channels, "
        "cells, classes, image size. Prints time, compile time and memory of each, and the power "
        "by which they grow: 1.00 is twice the cost for twice the size. Each measurement compiles "
        "in a process of its own, for a minute or more.",
        config=CIFAR,
    )
    grow.add_argument("--only", default="", metavar="SIZE,SIZE", help="only these; by default all")
    grow.add_argument(
        "--factors",
        type=_factors,
        default=(0.5, 1.0, 2.0, 4.0),
        metavar="F,F",
        help="multiples of the config's own size; by default 0.5,1,2,4",
    )
    grow.add_argument("--steps", type=size("steps"), default=5, help="number that is timed")
    grow.add_argument("--plot", metavar="FILE", help="draw it too, as an SVG file")


def _factors(text: str) -> tuple[float, ...]:
    values = tuple(map(float, text.split(",")))
    if not all(0 < value <= 1000 for value in values):
        raise ValueError
    return values


def _grow(args) -> int:
    from istanas_jax.bench.costs import grow

    names = tuple(filter(None, args.only.split(",")))
    config = load_config(args.config, args.overrides)
    results = grow.run(config, only=names, factors=args.factors, steps=args.steps, say=_say)
    if args.plot:
        from istanas_jax.bench.costs.grow_plot import plot

        plot(results, args.plot)
    return show(args, results, grow.table)


def _add_start(benchmarks) -> None:
    add_benchmark(
        benchmarks,
        "start",
        _start,
        "seconds from a command to its first step, with and without compiled programs",
        "Starts commands as a user does: --help; a run up to its first step, with nothing "
        "compiled before; the same run in a new folder, which finds the programs of the first; "
        "inspect. All folders are temporary.",
        config="digits",
    )


def _start(args) -> int:
    from istanas_jax.bench.costs import start

    load_config(args.config, args.overrides)  # a mistake in it is told before anything starts
    return show(args, start.run(args.config, args.overrides, say=_say), start.table)
