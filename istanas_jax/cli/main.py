"""The entry of the command line: parses and dispatches, nothing else."""

import argparse
import select
import sys
import traceback
from collections.abc import Sequence
from functools import partial

from istanas_jax import __version__
from istanas_jax.cli import bench, look, runs, study
from istanas_jax.cli.arguments import show, size
from istanas_jax.config.files import TRUST

DESCRIPTION = """\
ISTA-NAS: neural architecture search as sparse coding, in JAX.

Searches a network architecture for your images, trains it, and tests it once. For each node of a
cell a short vector b is trained by gradient descent, a LASSO recovers a sparse choice z from it,
and only the chosen connections run. README.md and docs/ explain more.
"""
EXAMPLES = """\
examples:
  python -m istanas_jax run --config digits --workdir runs/digits
                                                search, retrain, test: minutes on a CPU
  python -m istanas_jax retrain --config cifar10_retrain --workdir runs/cell \\
      --genotype ISTA_twostage                  train a published or own cell
  python -m istanas_jax predict runs/digits image.png
                                                classify images with the network of a run
  python -m istanas_jax inspect runs/digits     what the newest checkpoint holds: cells, b, z, ...
  python -m istanas_jax report runs/digits      write a page: result, replay of the search, curves
  python -m istanas_jax describe ISTA_twostage  parameters, multiply-adds, memory of a network
  python -m istanas_jax judge ISTA_twostage runs/digits
                                                are these cells better than random ones?
  python -m istanas_jax plan --config imagenet_one_stage --topology v5e:4x8
                                                does it fit on a TPU slice, how long will it take?
  python -m istanas_jax study correlation --config study:correlation_small \\
      --workdir runs/tau                        compare search methods under one budget
  python -m istanas_jax bench recovery          is the LASSO exact, and how fast is it?
  python -m istanas_jax bench step              what does a search step cost on this machine?

`python -m istanas_jax COMMAND --help` explains a command. `istanas COMMAND` is the same.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return 0 after success, 2 after bad input, 1 after a bug."""
    parser = _parser()
    args, rest = parser.parse_known_args(argv)
    # `--config.KEY=VALUE` may name any key of any config, so only ml_collections can check it.
    args.overrides = [argument for argument in rest if argument.startswith("--config.")]
    takes_config = hasattr(args, "config")
    if unknown := [a for a in rest if a not in args.overrides or not takes_config]:
        parser.error(f"unknown arguments: {' '.join(unknown)}")
    try:
        return args.run(args)
    except KeyboardInterrupt:
        print("istanas: stopped", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _output_is_closed():
            raise
        return _failed(error)


def _output_is_closed() -> bool:
    """Whether nobody reads our output or errors any more, so that a broken pipe is no bug."""
    poll = select.poll()
    for stream in (1, 2):
        poll.register(stream, 0)
    return bool(poll.poll(0))


def _failed(error: Exception) -> int:
    """Say what went wrong in one sentence; only a bug of ours shows where."""
    words = " ".join(str(error).split()) or type(error).__name__
    code = 2
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in words:
        words = f"out of memory ({words[:200]}): try a smaller batch, or fewer channels or cells"
    elif not isinstance(error, ValueError | OSError):
        # On the terminal and not in a file: often only the output of a remote job is left.
        traceback.print_exception(error)
        words = (
            f"{type(error).__name__}: this is a bug in istanas_jax; please report it with the "
            "lines above"
        )
        code = 1
    print(f"istanas: {words}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="istanas",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    runs.add_commands(commands)
    look.add_commands(commands)
    _add_describe(commands)
    _add_plan(commands)
    bench.add_commands(commands)
    study.add_commands(commands)
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
        "genotype",
        nargs="?",
        help="a published name, a file, or the genotype as JSON or DARTS text",
    )
    describe.add_argument(
        "--all", action="store_true", help="all published cells, beside the paper's tables"
    )
    describe.add_argument("--net", choices=("cifar", "imagenet"), default="cifar")
    for name, meaning in (
        ("channels", "channels of the first cells"),
        ("cells", "number of cells"),
        ("classes", "number of classes"),
        ("image-size", "width and height in pixels"),
    ):
        describe.add_argument(f"--{name}", type=size(name), metavar="N", help=meaning)
    describe.add_argument(
        "--one-stage", action="store_true", help="add the batch norms that one-stage nets have"
    )
    describe.add_argument("--json", action="store_true", help="print one JSON line")
    describe.set_defaults(run=_describe)


def _describe(args) -> int:
    from istanas_jax.networks import description
    from istanas_jax.plan import published_sizes
    from istanas_jax.space import genotype

    if args.all:
        return show(args, published_sizes.describe_all(), published_sizes.table)
    if args.genotype is None:
        raise ValueError("describe needs a genotype, or --all")
    results = description.describe(
        genotype.load(args.genotype),
        net=args.net,
        channels=args.channels,
        cells=args.cells,
        classes=args.classes,
        image_size=args.image_size,
        one_stage=args.one_stage,
    )
    return show(args, results, description.table)


def _add_plan(commands) -> None:
    plan = commands.add_parser(
        "plan",
        help="does a run fit on these devices, and how long will it take?",
        description="Compiles the steps of a config's schedule for a topology, without running "
        "them and without its devices: memory per chip, work, traffic between chips, time. TPU "
        "slices need libtpu (requirements-tpu.txt), but no TPU.",
    )
    plan.add_argument("--config", required=True, metavar="FILE[:VARIANT]", help=TRUST)
    plan.add_argument(
        "--topology", required=True, help="cpu:N, GPUs: a100:8, or a TPU slice: v5e:4x8"
    )
    plan.add_argument("--json", action="store_true", help="print one JSON line")
    plan.add_argument("--markdown", action="store_true", help="print a table")
    plan.set_defaults(run=_plan)


def _plan(args) -> int:
    from istanas_jax.config.files import load_config
    from istanas_jax.plan import estimate, table

    say = partial(print, file=sys.stderr, flush=True)
    results = estimate.run(load_config(args.config, args.overrides), args.topology, say=say)
    if args.markdown:
        print(table.HEADER, table.markdown(results, args.config), sep="\n")
    else:
        show(args, results, table.table)
    return 0 if results["fits"] else 1
