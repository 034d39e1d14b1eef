"""The commands that look into what a run has left: they parse and dispatch, nothing else."""

import argparse

from istanas_jax.cli.arguments import show

INSPECT = """\
Shows what a checkpoint holds, without its network, its images, or jax: what it is and what wrote
it; both cells in words and drawn; b, z, support, coefficients, which nodes are frozen, and how well
z solves the LASSO of b (KKT residual); sizes of the arrays and what the optimisers remember. Only
what is asked for is read, and what is read is checked.
"""
INSPECT_EXAMPLES = """\
examples:
  istanas inspect runs/one_stage                     the newest checkpoint
  istanas inspect runs/one_stage/checkpoints/search_0/2184
                                                     this one
  istanas inspect runs/one_stage --params 'params.cell_00.*depthwise*'
                                                     shapes and norms of some arrays
  istanas inspect runs/one_stage/checkpoints/search_0 --diff 2184 2496
                                                     what changed from one to the other
  istanas inspect runs/one_stage --array step --out step.npy
                                                     one array, for numpy

In a pattern * stands for anything, dots included; a name without * also takes what is below it.
"""
REPORT = """\
Writes one HTML file that opens from the disk: no network, no server, light and dark.

  one run          WORKDIR/report.html: the result, the cells, the search as a replay with z of each
                   node, curves, where the time went, the genotype to copy, the config
  several runs     comparison.html: results, cells and configs side by side, curves overlaid
  a folder of runs index.html in it: a table to sort, with a link to the page of each run

Every run writes its page when it ends; this command writes it at any time, also of a run that is
still going or was killed.
"""


JUDGE = """\
Predicts, without training anything, how good cells are on CIFAR-10, and which share of random cells
they beat. The judge is a regression on the 10,307 cells of NAS-Bench-301, which others trained; it
knows cells of 4 nodes and the 7 operations of DARTS. It cannot judge a collapsed cell,
and warns of cells that look like one. In a run's folder it follows each search over its recoveries.
"""


WATCH = """\
Serves the pages of runs under way to a browser on this machine (127.0.0.1, nobody else can reach
it). A page updates by itself. Nothing but the runs in FOLDER is read, and nothing is written; the
runs may end, be continued, or begin meanwhile. Ctrl-C ends it.
"""


def add_commands(commands) -> None:
    """Add `inspect`, `report`, `watch` and `judge`."""
    _add_inspect(commands)
    _add_report(commands)
    _add_watch(commands)
    _add_judge(commands)


def _add_inspect(commands) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="what is in a checkpoint: cells, b, z, LASSO residual, arrays; what two differ in",
        description=INSPECT,
        epilog=INSPECT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inspect.add_argument(
        "path",
        nargs="?",
        metavar="PATH",
        help="a run's folder, a folder of steps in it, or a step; may be gs://BUCKET/PATH",
    )
    inspect.add_argument(
        "--params", metavar="PATTERN", help="list the arrays of these names with size and norm"
    )
    inspect.add_argument(
        "--diff",
        nargs=2,
        metavar=("A", "B"),
        help="compare two checkpoints: paths, or steps in PATH",
    )
    inspect.add_argument("--array", metavar="NAME", help="write this array to --out")
    inspect.add_argument("--out", metavar="FILE.npy", help="where --array is written to")
    inspect.add_argument("--json", action="store_true", help="print one JSON line with everything")
    inspect.set_defaults(run=_inspect)


def _inspect(args) -> int:
    # Here, so that the other commands need not wait for them.
    from istanas_jax.look.inspection import table
    from istanas_jax.look.inspection.contents import inspect, save_array
    from istanas_jax.look.inspection.diff import diff

    if args.path is None and not args.diff:
        raise ValueError("give the PATH of a run or a checkpoint")
    if (args.array is None) != (args.out is None):
        raise ValueError("--array NAME and --out FILE.npy belong together")
    if args.array and (args.diff or args.params):
        raise ValueError("--array goes with neither --diff nor --params")
    if args.diff:
        results = diff(*args.diff, inside=args.path, params=args.params)
        return show(args, results, table.diff_table)
    if args.array:
        results = save_array(args.path, args.array, args.out)
        return show(args, results, table.show_array)
    return show(args, inspect(args.path, args.params), table.table)


def _add_report(commands) -> None:
    report = commands.add_parser(
        "report",
        help="a page about a run, several compared, or a folder of them",
        description=REPORT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    report.add_argument(
        "workdirs", nargs="+", metavar="WORKDIR", help="folder of a run, or one that holds runs"
    )
    report.add_argument("--out", metavar="FILE", help="where to write the page")
    report.set_defaults(run=_report)


def _report(args) -> int:
    from istanas_jax.look.report import compare, index, run_page
    from istanas_jax.look.report.facts import is_run

    if len(args.workdirs) > 1:
        path = compare.write(args.workdirs, args.out or compare.NAME)
    elif is_run(args.workdirs[0]):
        path = run_page.write(args.workdirs[0], args.out)
    else:
        path = index.write(args.workdirs[0], args.out)
    print(path)
    return 0


def _add_watch(commands) -> None:
    watch = commands.add_parser(
        "watch",
        help="the pages of runs under way, in a browser on this machine",
        description=WATCH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    watch.add_argument(
        "folder",
        metavar="WORKDIR|FOLDER",
        help="folder of a run, or one that holds runs; may be gs://BUCKET/PATH",
    )
    watch.add_argument(
        "--port", type=int, default=8766, metavar="N", help="default: 8766; 0: any free one"
    )
    watch.add_argument(
        "--seconds", type=float, metavar="N", help="end after that time; default: at Ctrl-C"
    )
    watch.set_defaults(run=_watch)


def _watch(args) -> int:
    import threading

    from istanas_jax.look.report.serving import serve

    if not 0 <= args.port < 2**16:
        raise ValueError(f"port {args.port} is none: give a number from 0 to {2**16 - 1}")
    with serve(args.folder, args.port) as server:
        print(f"http://{server.server_address[0]}:{server.server_address[1]}/", flush=True)
        if args.seconds is not None:
            threading.Timer(args.seconds, server.shutdown).start()
        server.serve_forever(poll_interval=0.2)
    return 0


def _add_judge(commands) -> None:
    judge = commands.add_parser(
        "judge",
        help="how good are these cells, by cells that others trained?",
        description=JUDGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    judge.add_argument(
        "specs",
        nargs="*",
        metavar="GENOTYPE|WORKDIR",
        help="a published name, a file, JSON or DARTS text, random:SEED, or the folder of a run",
    )
    judge.add_argument(
        "--fit",
        metavar="CELLS.json",
        help="fit the regression again, to a list of trained cells, and print how well it predicts",
    )
    judge.add_argument("--out", metavar="FILE", help="where --fit writes (default: the package's)")
    judge.add_argument("--json", action="store_true", help="print one JSON line")
    judge.set_defaults(run=_judge)


def _judge(args) -> int:
    from istanas_jax.judge import fit
    from istanas_jax.look import judgement

    if args.fit:
        results = fit.fit(args.fit, args.out or judgement.default_file())
        return show(args, results, fit.table)
    if not args.specs:
        raise ValueError("judge needs a genotype or the folder of a run")
    return show(args, judgement.judge_all(args.specs), judgement.table)
