"""The command line: parses and dispatches, nothing else."""

import argparse
import json
import sys
from collections.abc import Sequence

from istanas_jax import __version__

DESCRIPTION = """\
ISTA-NAS: neural architecture search as sparse coding, in JAX.

Per node of a cell a low-dimensional b is trained by gradient; a LASSO recovers a sparse z from it;
only the connections in z's support run.
"""
EXAMPLES = """\
examples:
  python -m istanas_jax bench recovery          is the LASSO exact, and how fast is it?

`python -m istanas_jax COMMAND --help` explains a command. `istanas COMMAND` is the same.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it succeeded, 2 after a sentence about bad input."""
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except (ValueError, OSError) as error:
        print(f"istanas: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="istanas",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_bench(commands)
    return parser


def _add_bench(commands) -> None:
    bench = commands.add_parser("bench", help="measure: exactness and time of the LASSO")
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


def _bench_recovery(args) -> int:
    from istanas_jax.bench import recovery

    figures = recovery.run(problems=args.problems, seed=args.seed)
    print(json.dumps(figures) if args.json else recovery.table(figures))
    return 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value
