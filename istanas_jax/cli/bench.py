"""The benchmarks of the command line: they parse and dispatch, nothing else."""

import sys
from functools import partial

from ml_collections import ConfigDict

from istanas_jax.cli import bench_costs
from istanas_jax.cli.arguments import add_benchmark, positive, show, size
from istanas_jax.config.files import load_config


def add_commands(commands) -> None:
    """Add `bench recovery`, `step`, `memory`, `loop`, `data`, `switch`, `docs` and `torture`.

    `bench_costs` adds the others.
    """
    bench = commands.add_parser(
        "bench", help="measure: the LASSO's exactness, a step's cost, the loop, images, the switch"
    )
    benchmarks = bench.add_subparsers(required=True, metavar="WHAT")
    for add in (
        _add_recovery,
        _add_step,
        _add_memory,
        _add_loop,
        _add_data,
        _add_switch,
        _add_docs,
        _add_torture,
    ):
        add(benchmarks)
    bench_costs.add_commands(benchmarks)


def _add_recovery(benchmarks) -> None:
    recovery = add_benchmark(
        benchmarks,
        "recovery",
        _recovery,
        "the LASSO against scikit-learn, and the time of a recovery",
        "Solves random LASSO problems of all node sizes at b ~ 1e-3 ... 1, compares with "
        "scikit-learn in float64, and times the recovery of a whole architecture.",
    )
    recovery.add_argument("--problems", type=positive, default=1000, help="number per scale of b")
    recovery.add_argument("--seed", type=int, default=0)


def _recovery(args) -> int:
    from istanas_jax.bench import recovery

    return show(args, recovery.run(problems=args.problems, seed=args.seed), recovery.table)


def _add_step(benchmarks) -> None:
    step = add_benchmark(
        benchmarks,
        "step",
        _step,
        "time, compilation and memory of one search step",
        "Times one two-stage search step: an update of b on one batch, then of W on another, "
        "through the connections that the LASSO chose (dynamic, static) or through all candidates "
        "(dense, what DARTS pays).",
    )
    step.add_argument("--mode", choices=("dynamic", "static", "dense"), default="dynamic")
    step.add_argument(
        "--method",
        help="time the step of this search method as in a run (ista, darts, pc_darts, ...); only "
        "--batch, --channels, --cells, --steps, --dtype and --seed go with it",
    )
    step.add_argument("--genotype", default="ISTA_twostage", help="its connections are active")
    step.add_argument("--random-support", action="store_true", help="draw a support at every step")
    for name, default in (("batch", 64), ("channels", 16), ("cells", 8), ("steps", 10)):
        step.add_argument(f"--{name}", type=size(name), default=default)
    step.add_argument("--one-stage", action="store_true", help="add one-stage batch norms")
    step.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    step.add_argument("--seed", type=int, default=0)


def _step(args) -> int:
    if args.method:
        return _method_step(args)
    from istanas_jax.bench import step
    from istanas_jax.space import genotype

    results = step.run(
        _step_config(args, "ista"),
        genotype.load(args.genotype),
        mode=args.mode,
        steps=args.steps,
        random_support=args.random_support,
        regime="one_stage" if args.one_stage else "search",
    )
    return show(args, results, step.table)


def _method_step(args) -> int:
    from istanas_jax.bench import methods

    config = _step_config(args, args.method)
    return show(args, methods.run(config, steps=args.steps), methods.table)


def _step_config(args, method: str) -> ConfigDict:
    names = ("batch", "channels", "cells", "dtype")
    config = _config_of(method, {name: getattr(args, name) for name in names})
    config.seed = args.seed
    return config


def _config_of(method: str, search: dict) -> ConfigDict:
    """The paper's search on CIFAR-10 by this method, with other values in its search part."""
    values = {"method": method} | search
    overrides = [f"--config.search.{key}={value}" for key, value in values.items()]
    return load_config("configs/cifar10_two_stage.py", overrides)


def _add_memory(benchmarks) -> None:
    memory = add_benchmark(
        benchmarks,
        "memory",
        _memory,
        "memory of a search step by the compiler: ISTA-NAS and DARTS, recomputing or not",
        "Compiles a search step of ISTA-NAS and of DARTS, each in a form that keeps the outputs of "
        "operations for the gradient and in one that runs the operations again, and prints the "
        "temporary memory of each. Nothing is run; compiling takes minutes.",
    )
    for name, default in (("batch", 64), ("channels", 16), ("cells", 8)):
        memory.add_argument(f"--{name}", type=positive, default=default)


def _memory(args) -> int:
    from istanas_jax.bench import memory
    from istanas_jax.space import genotype

    sizes = {"batch": args.batch, "channels": args.channels, "cells": args.cells}
    results = memory.run(_config_of, genotype.load("ISTA_twostage"), **sizes)
    return show(args, results, memory.table)


def _add_loop(benchmarks) -> None:
    loop = add_benchmark(
        benchmarks,
        "loop",
        _loop,
        "what a search costs besides its steps: data, logging, recovery, checkpoints",
        "Runs two short epochs of a search with everything that belongs to it, and compares with "
        "the compiled step alone.",
        config="configs/cifar10_two_stage.py",
    )
    loop.add_argument("--steps", type=positive, default=20, help="number in an epoch")


def _loop(args) -> int:
    from istanas_jax.bench import loop

    results = loop.run(load_config(args.config, args.overrides), steps=args.steps)
    return show(args, results, loop.table)


def _add_data(benchmarks) -> None:
    data = add_benchmark(
        benchmarks,
        "data",
        _data,
        "images per second of the pipeline that decodes JPEGs, and what limits it",
        "Decodes and crops the images that a config names, or images like those of ImageNet made "
        "for the purpose, in the pipeline and part by part, and compares with the same crops by "
        "Pillow.",
        config="configs/imagenet_one_stage.py",
    )
    data.add_argument("--images", type=positive, default=1024, help="number in a round")
    data.add_argument("--workers", type=int, help="processes; 0: threads of this process")
    data.add_argument("--rounds", type=positive, default=5, help="how often the parts take turns")
    data.add_argument(
        "--step-images-per-second",
        type=float,
        default=0.0,
        metavar="N",
        help="rate at which a step uses images, to say which of the two waits",
    )


def _data(args) -> int:
    from istanas_jax.bench import data

    given = any(o.startswith(("--config.data.name", "--config.data.dir")) for o in args.overrides)
    results = data.run(
        load_config(args.config, args.overrides),
        images=args.images,
        workers=args.workers,
        rounds=args.rounds,
        step_rate=args.step_images_per_second,
        must_have=given,
    )
    return show(args, results, data.table)


def _add_switch(benchmarks) -> None:
    add_benchmark(
        benchmarks,
        "switch",
        _switch,
        "a one-stage run's step before and after its architecture is fixed",
        "Times the search step and the training step of a one-stage config in turns, on random "
        "images.",
        config="configs/cifar10_one_stage.py:small",
    )


def _switch(args) -> int:
    from istanas_jax.bench import switch

    return show(args, switch.run(load_config(args.config, args.overrides)), switch.table)


def _add_docs(benchmarks) -> None:
    docs = add_benchmark(
        benchmarks,
        "docs",
        _docs,
        "the documented figures, measured again",
        "Runs the commands again that documented figures come from, one after the other and "
        "in the checkout, and prints what is documented beside what was measured; exits with 1 if "
        "they differ. Some need CIFAR-10, as `prepare cifar10` leaves it.",
    )
    docs.add_argument(
        "--minutes",
        type=float,
        default=float("inf"),
        metavar="N",
        help="only commands that take at most so long on two cores; all together take 4 hours",
    )
    docs.add_argument("--only", default="", metavar="TEXT", help="only commands that contain it")


def _docs(args) -> int:
    from istanas_jax.bench import documented

    say = partial(print, file=sys.stderr, flush=True)
    results = documented.run(minutes=args.minutes, only=args.only, say=say)
    show(args, results, documented.table)
    return 0 if results["agrees"] else 1


def _add_torture(benchmarks) -> None:
    torture = add_benchmark(
        benchmarks,
        "torture",
        _torture,
        "kill runs and damage checkpoints at random: what is lost?",
        "Kills real runs on the embedded digits at random moments, starts them again until they "
        "end, and compares what they end with, bit for bit, with a run that nobody disturbed. "
        "Damages checkpoints at random and looks whether the newest that is whole is found. Exit "
        "code 1 if anything was lost.",
    )
    torture.add_argument(
        "--kills", type=int, default=20, metavar="N", help="number over all schedules"
    )
    torture.add_argument("--damages", type=int, default=200, metavar="N")
    torture.add_argument("--seed", type=int, default=0)
    torture.add_argument("--schedule", choices=("both", "two_stage", "one_stage"), default="both")


def _torture(args) -> int:
    from istanas_jax.bench import torture

    schedules = tuple(torture.SCHEDULES) if args.schedule == "both" else (args.schedule,)
    results = torture.run(
        kills=args.kills,
        damages=args.damages,
        seed=args.seed,
        schedules=schedules,
        say=partial(print, file=sys.stderr, flush=True),
    )
    show(args, results, torture.table)
    return 1 if results["lost"] else 0
