"""The commands that work in a run's folder: they parse and dispatch, nothing else."""

import sys

from ml_collections import ConfigDict

from istanas_jax.cli.arguments import positive
from istanas_jax.config.files import TRUST, load_config
from istanas_jax.runs.interrupts import Interrupted

CONFIG_HELP = """\
Any key of the config can be changed: --config.search.epochs=10 --config.data.name=my_images.npz.
The same command with the same --workdir goes on where it was stopped or killed.
"""


def add_job(commands, name: str, summary: str, description: str, *, dry_run: bool = False):
    """Add a command that works in a folder by a config."""
    job = commands.add_parser(name, help=summary, description=description, epilog=CONFIG_HELP)
    job.add_argument(
        "--config",
        required=True,
        metavar="FILE[:VARIANT]",
        help=f"what to do, e.g. configs/digits.py or configs/cifar10_two_stage.py:small; {TRUST}",
    )
    job.add_argument(
        "--workdir",
        required=True,
        metavar="DIR",
        help="where everything is kept; hosts share it, it may be gs://BUCKET/PATH",
    )
    if dry_run:
        job.add_argument(
            "--dry-run",
            action="store_true",
            help="check config, folder, images and memory, say what would be done, and end",
        )
    job.add_argument(
        "--profile",
        metavar="FIRST:LAST",
        help="record these steps of each phase with jax.profiler, in WORKDIR/profile; for example "
        "10:20",
    )
    hosts = job.add_argument_group(
        "several hosts", "The same command on each; TPU pods and Slurm need none of these."
    )
    hosts.add_argument("--coordinator", metavar="HOST:PORT", help="address of process 0")
    hosts.add_argument("--processes", type=int, metavar="N", help="number of processes")
    hosts.add_argument("--process", type=int, metavar="I", help="number of this one, from 0")
    return job


def add_commands(commands) -> None:
    """Add `run`, `search`, `retrain`, `prepare`, `export` and `predict`."""
    for add in (_add_run, _add_search, _add_retrain, _add_prepare, _add_export, _add_predict):
        add(commands)


def _add_run(commands) -> None:
    run = add_job(
        commands,
        "run",
        "a whole schedule: search, retrain, test",
        "Runs the schedule of a config from images to a trained network: search, genotype, "
        "retraining at target size, one reading of the test split, result.json.",
        dry_run=True,
    )
    run.set_defaults(run=_run)


def _add_search(commands) -> None:
    search = add_job(
        commands,
        "search",
        "the first half: find a genotype",
        "Searches only, and leaves genotype.json and cells/*.svg in the folder. `run` with the "
        "same folder goes on with the second half.",
        dry_run=True,
    )
    search.set_defaults(run=_search)


def _add_retrain(commands) -> None:
    retrain = add_job(
        commands,
        "retrain",
        "the second half: train a given cell and test it",
        "Trains a genotype as the `train` part of the config says, and reads the test split once: "
        "from scratch, or with --from the network of another run on other images.",
        dry_run=True,
    )
    retrain.add_argument(
        "--genotype",
        help="a published name, a file, JSON or DARTS text, or random:SEED; default: the config's",
    )
    retrain.add_argument(
        "--from",
        dest="source",
        metavar="RUN",
        help="start from the trained network in this run's folder, with a new head; the config "
        "must have a part train.transfer, as configs/transfer.py has",
    )
    retrain.add_argument(
        "--one-stage", action="store_true", help="add the batch norms of one-stage cells"
    )
    retrain.add_argument(
        "--runs", type=int, metavar="N", help="number of seeds; prints mean and deviation"
    )
    retrain.set_defaults(run=_retrain)


def _add_prepare(commands) -> None:
    prepare = commands.add_parser(
        "prepare",
        help="download a TFDS data set in the format that is read here",
        description="Downloads a data set of tensorflow-datasets and writes it as array_record, "
        "which is read without TensorFlow.",
    )
    prepare.add_argument("name", help="name in the TFDS catalogue, e.g. cifar10")
    prepare.add_argument("--dir", default="", help="folder to write to; default: TFDS's own")
    prepare.set_defaults(run=_prepare)


def _add_export(commands) -> None:
    export = commands.add_parser(
        "export",
        help="take a trained network away: StableHLO, ONNX, PyTorch, safetensors",
        description="Writes the trained network of a finished run as genotype.json, "
        "weights.safetensors, model.stablehlo (runs with jax and flatbuffers alone; a program, "
        "which jax promises to load for 6 months), network.py with pytorch_state.npz (runs with "
        "torch alone) and, where the extra `onnx` is installed, model.onnx; each is read again and "
        "its logits compared.",
    )
    export.add_argument("workdir", metavar="WORKDIR", help="folder of a finished run")
    export.add_argument(
        "--out", required=True, metavar="DIR", help="new, empty, or an earlier export"
    )
    export.add_argument("--fold", action="store_true", help="fold batch norms into convolutions")
    export.add_argument(
        "--run",
        dest="number",
        type=int,
        default=0,
        metavar="N",
        help="which trained network, from 0",
    )
    export.add_argument(
        "--opset", type=int, metavar="N", help="of model.onnx; default: 17, read since 2022"
    )
    export.add_argument(
        "--bench", action="store_true", help="time each program of the export on this machine"
    )
    export.set_defaults(run=_export)


def _add_predict(commands) -> None:
    predict = commands.add_parser("predict", help="classify image files with a run or an export")
    predict.add_argument(
        "source",
        metavar="SOURCE",
        help="a run's folder, an export, or its model.stablehlo, which is a program: use only one "
        "that you trust",
    )
    predict.add_argument("images", nargs="+", metavar="IMAGE", help="image files or folders")
    predict.add_argument(
        "--top", type=positive, default=3, metavar="K", help="number of classes to name"
    )
    predict.add_argument("--json", action="store_true", help="print one JSON line per image")
    predict.set_defaults(run=_predict)


def _run(args) -> int:
    from istanas_jax import api

    return run_job(args, _config(args), api.DRIVERS)


def _search(args) -> int:
    from istanas_jax.schedules import two_stage

    return run_job(args, _config(args), {"two_stage": two_stage.search})


def _retrain(args) -> int:
    from istanas_jax.schedules import retrain, transfer

    config = _config(args)
    if args.source is not None:
        given = [override.removeprefix("--config.").split("=")[0] for override in args.overrides]
        if args.genotype or args.one_stage:
            raise ValueError("--from brings its cells: leave out --genotype and --one-stage")
        config = transfer.take(config, args.source, given)
    options = {"one_stage": args.one_stage, "runs": args.runs}
    config = retrain.config_for(config, args.genotype, **options)
    return run_job(args, config, {"retrain": retrain.run})


def _config(args) -> ConfigDict:
    return load_config(args.config, args.overrides)


def run_job(args, config: ConfigDict, drivers: dict) -> int:
    """Give the config to the driver of its schedule."""
    import jax

    from istanas_jax.devices import hosts
    from istanas_jax.devices.parallel import is_leader
    from istanas_jax.runs import program_cache

    if config.schedule not in drivers:
        raise ValueError(
            f"the schedule of {args.config} is {config.schedule}; this command knows "
            f"{', '.join(drivers)}"
        )
    if args.profile:
        with config.unlocked():
            config.log = ConfigDict({"writer": ""} | dict(config.get("log", {})))
            config.log.profile = args.profile
    if getattr(args, "dry_run", False):
        from istanas_jax.schedules.dry_run import dry_run

        print(dry_run(config, args.workdir))
        return 0
    program_cache.keep(args.workdir)
    hosts.join(args.coordinator, args.processes, args.process)
    try:
        drivers[config.schedule](config, args.workdir)
    except Interrupted as stop:
        if is_leader():
            print(stop, file=sys.stderr)
        return 128 + stop.number
    except Exception as error:
        if jax.process_count() > 1:
            hosts.leave_after(error)
        raise
    return 0


def _prepare(args) -> int:
    from istanas_jax.data import sources

    sources.prepare(args.name, args.dir)
    return 0


def _export(args) -> int:
    from istanas_jax.deploy import export, export_texts, latency

    options = {"run": args.number, "fold": args.fold, "opset": args.opset}
    print(export_texts.table(export.export(args.workdir, args.out, **options)))
    if args.bench:
        print(f"\n{latency.table(latency.measure(args.out))}")
    return 0


def _predict(args) -> int:
    from istanas_jax.deploy import predict

    found = predict.predict(args.source, args.images, top=args.top)
    for line in predict.lines(found, as_json=args.json):
        print(line)
    return 0
