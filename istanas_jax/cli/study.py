"""The studies of the command line: they parse and dispatch, nothing else."""

import argparse
import sys

from istanas_jax.cli.runs import add_job, run_job
from istanas_jax.config.files import load_config
from istanas_jax.runs.interrupts import Interrupted

STUDIES = {
    "cost": "step time, memory and compile time of each method over batch sizes: Table 1",
    "correlation": "Kendall's tau of accuracy in search and after training: Table 2",
    "accuracy": "search and train with each method: error, size, cost: Tables 3 and 4",
    "suite": "search and train with each method in each of several search spaces",
    "quality": "search for the same minutes with each method: are the cells better than random?",
    "curves": "accuracy over time, and how z comes to rest: Figure 2",
}
DESCRIPTION = """\
Compares search methods under one budget: the same images, epochs, sizes and seeds for all. The
folder holds an ordinary run per method and seed (`report` makes an index of them), and study.md,
study.json and study.svg, which are written anew after every run. The same command goes on where it
was stopped or killed; more methods, seeds and spaces (--config.study.methods and so on) may be
asked for later.
"""


def add_commands(commands) -> None:
    """Add one command for each study."""
    study = commands.add_parser(
        "study",
        help=f"compare search methods: {', '.join(STUDIES)}",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = study.add_subparsers(required=True, metavar="WHAT")
    for name, summary in STUDIES.items():
        job = add_job(names, name, summary, DESCRIPTION)
        job.set_defaults(run=_study, name=name)


def _study(args) -> int:
    config = load_config(args.config, args.overrides)
    if config.get("study", {}).get("name") != args.name:
        raise ValueError(f"{args.config} is no study of {args.name}: see configs/study.py")
    if args.name == "cost":  # it measures in other processes, which need the devices for themselves
        return _cost(args, config)
    return run_job(args, config, {"study": _driver(args.name)})


def _cost(args, config) -> int:
    from istanas_jax.studies.cost import CostStudy

    try:
        CostStudy(config, args.workdir).run()
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        return 128 + stop.number
    return 0


def _driver(name: str):
    from istanas_jax.studies import accuracy, correlation, curves, quality, suite

    study = {
        "correlation": correlation.CorrelationStudy,
        "accuracy": accuracy.AccuracyStudy,
        "suite": suite.SuiteStudy,
        "curves": curves.CurvesStudy,
        "quality": quality.QualityStudy,
    }[name]
    return lambda config, workdir: study(config, workdir).run()
