"""The commands that look at runs: they parse and dispatch, nothing else."""

import argparse

REPORT = """\
Writes one HTML file that opens from the disk: no network, no server, light and dark.

  one run          WORKDIR/report.html: the result, the cells, the search as a replay with z of each
                   node, curves, where the time went, the genotype to copy, the config
  several runs     comparison.html: results, cells and configs side by side, curves overlaid
  a folder of runs index.html in it: a table to sort, with a link to the page of each run

Every run writes its page when it ends; this command writes it at any time, also of a run that is
still going or was killed.
"""


def add_commands(commands) -> None:
    """report."""
    _add_report(commands)


def _add_report(commands) -> None:
    report = commands.add_parser(
        "report",
        help="a page about a run, several compared, or a folder of them",
        description=REPORT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    report.add_argument(
        "workdirs", nargs="+", metavar="WORKDIR", help="of a run, or a folder that holds runs"
    )
    report.add_argument("--out", metavar="FILE", help="where to write the page")
    report.set_defaults(run=_report)


def _report(args) -> int:
    from istanas_jax import report, report_compare, report_index
    from istanas_jax.report_facts import is_run

    if len(args.workdirs) > 1:
        path = report_compare.write(args.workdirs, args.out or report_compare.NAME)
    elif is_run(args.workdirs[0]):
        path = report.write(args.workdirs[0], args.out)
    else:
        path = report_index.write(args.workdirs[0], args.out)
    print(path)
    return 0
