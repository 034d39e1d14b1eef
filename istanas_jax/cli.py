"""The command line: parses and dispatches, nothing else."""

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial

from istanas_jax import __version__, cli_runs

DESCRIPTION = """\
ISTA-NAS: neural architecture search as sparse coding, in JAX.

Per node of a cell a low-dimensional b is trained by gradient; a LASSO recovers a sparse z from it;
only the connections in z's support run.
"""
EXAMPLES = """\
examples:
  python -m istanas_jax run --config configs/digits.py --workdir runs/digits
                                                search, retrain, test: minutes on a CPU
  python -m istanas_jax retrain --config configs/cifar10_retrain.py --workdir runs/cell \\
      --genotype ISTA_twostage                  train a published or own cell
  python -m istanas_jax predict runs/digits image.png
                                                use the network that a run has trained
  python -m istanas_jax describe ISTA_twostage  parameters, multiply-adds, memory of a network
  python -m istanas_jax plan --config configs/imagenet_one_stage.py --topology v5e:4x8
                                                does it fit on a TPU slice, how long will it take?
  python -m istanas_jax bench recovery          is the LASSO exact, and how fast is it?
  python -m istanas_jax bench step              what does a search step cost on this machine?

`python -m istanas_jax COMMAND --help` explains a command. `istanas COMMAND` is the same.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it succeeded, 2 after a sentence about bad input."""
    parser = _parser()
    args, rest = parser.parse_known_args(argv)
    # `--config.KEY=VALUE` may name any key of any config, so only ml_collections can check it.
    args.overrides = [argument for argument in rest if argument.startswith("--config.")]
    takes_config = hasattr(args, "config")
    if unknown := [a for a in rest if a not in args.overrides or not takes_config]:
        parser.error(f"unknown arguments: {' '.join(unknown)}")
    try:
        return args.run(args)
    except (ValueError, OSError) as error:
        print(f"istanas: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("istanas: stopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="istanas",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    cli_runs.add_commands(commands)
    _add_describe(commands)
    _add_plan(commands)
    _add_bench(commands)
    return parser


def _add_describe(commands) -> None:
    describe = commands.add_parser(
        "describe",
        help="the size of a genotype's network, and what an image costs",
        description="Counts parameters, multiply-adds and FLOPs of the network that a genotype "
        "makes, and the memory of a forward pass. Sizes not given are those of the paper: 36 "
        "channels, 20 cells, 10 classes, 32 pixels (cifar), or 48, 14, 1000, 224 (imagenet).",
    )
    describe.add_argument(
        "genotype", help="a published name, a file, or the genotype as JSON or DARTS text"
    )
    describe.add_argument("--net", choices=("cifar", "imagenet"), default="cifar")
    for size, meaning in (
        ("channels", "channels of the first cells"),
        ("cells", "number of cells"),
        ("classes", "number of classes"),
        ("image-size", "width and height in pixels"),
    ):
        describe.add_argument(f"--{size}", type=_positive, metavar="N", help=meaning)
    describe.add_argument(
        "--one-stage", action="store_true", help="with the additional batch norms of one-stage nets"
    )
    describe.add_argument("--json", action="store_true", help="print one JSON line")
    describe.set_defaults(run=_describe)


def _describe(args) -> int:
    from istanas_jax import describe, genotype

    figures = describe.describe(
        genotype.load(args.genotype),
        net=args.net,
        channels=args.channels,
        cells=args.cells,
        classes=args.classes,
        image_size=args.image_size,
        one_stage=args.one_stage,
    )
    print(json.dumps(figures) if args.json else describe.table(figures))
    return 0


def _add_plan(commands) -> None:
    plan = commands.add_parser(
        "plan",
        help="does a run fit on these devices, and how long will it take?",
        description="Compiles the steps of a config's schedule for a topology, without running "
        "them and without its devices: memory per chip, work, traffic between chips, time. TPU "
        "slices need libtpu (requirements-tpu.txt), but no TPU.",
    )
    plan.add_argument("--config", required=True, metavar="FILE[:VARIANT]")
    plan.add_argument(
        "--topology", required=True, help="cpu:N, or a TPU slice: v5e:2x2, v5e:4x8, v4:2x2x4"
    )
    plan.add_argument("--json", action="store_true", help="print one JSON line")
    plan.add_argument("--markdown", action="store_true", help="print a table")
    plan.set_defaults(run=_plan)


def _plan(args) -> int:
    from istanas_jax import plan
    from istanas_jax.config_files import load_config

    say = partial(print, file=sys.stderr, flush=True)
    figures = plan.run(load_config(args.config, args.overrides), args.topology, say=say)
    if args.markdown:
        print(plan.HEADER, plan.markdown(figures, args.config), sep="\n")
    else:
        print(json.dumps(figures) if args.json else plan.table(figures))
    return 0 if figures["fits"] else 1


def _add_bench(commands) -> None:
    bench = commands.add_parser("bench", help="measure: the LASSO's exactness, a step's cost")
    kinds = bench.add_subparsers(required=True, metavar="WHAT")
    recovery = kinds.add_parser(
        "recovery",
        help="the LASSO against scikit-learn, and the time of a recovery",
        description="Solves random LASSO problems of all node sizes at b ~ 1e-3 ... 1, compares "
        "with scikit-learn in float64, and times the recovery of a whole architecture.",
    )
    recovery.add_argument("--problems", type=_positive, default=1000, help="per scale of b")
    recovery.add_argument("--seed", type=int, default=0)
    recovery.add_argument("--json", action="store_true", help="print one JSON line")
    recovery.set_defaults(run=_bench_recovery)

    step = kinds.add_parser(
        "step",
        help="time, compilation and memory of one search step",
        description="Times one two-stage search step: an update of b on one batch, then of W on "
        "another, through the connections that the LASSO chose (dynamic, static) or through all "
        "candidates (dense, what DARTS pays).",
    )
    step.add_argument("--mode", choices=("dynamic", "static", "dense"), default="dynamic")
    step.add_argument("--genotype", default="ISTA_twostage", help="whose connections are active")
    step.add_argument("--random-support", action="store_true", help="another support at every step")
    for name, default in (("batch", 64), ("channels", 16), ("cells", 8), ("steps", 10)):
        step.add_argument(f"--{name}", type=_positive, default=default)
    step.add_argument("--one-stage", action="store_true", help="batch norms of one-stage nets")
    step.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    step.add_argument("--seed", type=int, default=0)
    step.add_argument("--json", action="store_true", help="print one JSON line")
    step.set_defaults(run=_bench_step)

    loop = kinds.add_parser(
        "loop",
        help="what a search costs besides its steps: data, logging, recovery, checkpoints",
        description="Runs two short epochs of a search with everything that belongs to it, and "
        "compares with the compiled step alone.",
    )
    loop.add_argument("--config", default="configs/cifar10_two_stage.py", metavar="FILE[:VARIANT]")
    loop.add_argument("--steps", type=_positive, default=20, help="in an epoch")
    loop.add_argument("--json", action="store_true", help="print one JSON line")
    loop.set_defaults(run=_bench_loop)

    data = kinds.add_parser(
        "data",
        help="images per second of the pipeline that decodes JPEGs, and what limits it",
        description="Decodes and crops the images that a config names, or images like those of "
        "ImageNet made for the purpose, in the pipeline and part by part, and compares with the "
        "same crops by Pillow.",
    )
    data.add_argument("--config", default="configs/imagenet_one_stage.py", metavar="FILE[:VARIANT]")
    data.add_argument("--images", type=_positive, default=1024, help="in a round of the pipeline")
    data.add_argument("--workers", type=int, help="processes; 0: threads of this one")
    data.add_argument("--rounds", type=_positive, default=5, help="in which the parts take turns")
    data.add_argument(
        "--step-images-per-second",
        type=float,
        default=0.0,
        metavar="N",
        help="what the step uses, to say which of the two waits for the other",
    )
    data.add_argument("--json", action="store_true", help="print one JSON line")
    data.set_defaults(run=_bench_data)

    switch = kinds.add_parser(
        "switch",
        help="a one-stage run's step before and after its architecture is fixed",
        description="Times the search step and the training step of a one-stage config in turns, "
        "on random images.",
    )
    switch.add_argument(
        "--config", default="configs/cifar10_one_stage.py:small", metavar="FILE[:VARIANT]"
    )
    switch.add_argument("--json", action="store_true", help="print one JSON line")
    switch.set_defaults(run=_bench_switch)


def _bench_switch(args) -> int:
    from istanas_jax.bench import switch
    from istanas_jax.config_files import load_config

    figures = switch.run(load_config(args.config, args.overrides))
    print(json.dumps(figures) if args.json else switch.table(figures))
    return 0


def _bench_loop(args) -> int:
    from istanas_jax.bench import loop
    from istanas_jax.config_files import load_config

    figures = loop.run(load_config(args.config, args.overrides), steps=args.steps)
    print(json.dumps(figures) if args.json else loop.table(figures))
    return 0


def _bench_data(args) -> int:
    from istanas_jax.bench import data
    from istanas_jax.config_files import load_config

    given = any(o.startswith(("--config.data.name", "--config.data.dir")) for o in args.overrides)
    figures = data.run(
        load_config(args.config, args.overrides),
        images=args.images,
        workers=args.workers,
        rounds=args.rounds,
        step_rate=args.step_images_per_second,
        must_have=given,
    )
    print(json.dumps(figures) if args.json else data.table(figures))
    return 0


def _bench_recovery(args) -> int:
    from istanas_jax.bench import recovery

    figures = recovery.run(problems=args.problems, seed=args.seed)
    print(json.dumps(figures) if args.json else recovery.table(figures))
    return 0


def _bench_step(args) -> int:
    from istanas_jax import genotype
    from istanas_jax.bench import step

    figures = step.run(
        genotype.load(args.genotype),
        mode=args.mode,
        batch=args.batch,
        channels=args.channels,
        cells=args.cells,
        steps=args.steps,
        random_support=args.random_support,
        regime="one_stage" if args.one_stage else "search",
        dtype=args.dtype,
        seed=args.seed,
    )
    print(json.dumps(figures) if args.json else step.table(figures))
    return 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value
