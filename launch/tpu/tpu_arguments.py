"""The arguments of tpu_pod.py, and everything that can be wrong with them."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DESCRIPTION = """\
Run istanas_jax on a Cloud TPU slice of any size: create it if it is not there, copy this checkout
to every host, install, start the job on all of them, show what the first one prints, and do it
again when the slice has been preempted: the run goes on from its checkpoints in the bucket.

The job does not depend on this program: after Ctrl-C or a lost connection the same command follows
it again.
"""
EXAMPLES = """\
examples:
  python launch/tpu/tpu_pod.py --name istanas --zone us-west4-a --accelerator v5litepod-32 --spot \\
      --delete --fetch runs/imagenet -- \\
      run --config configs/imagenet_one_stage.py --workdir gs://BUCKET/imagenet
                                    the whole job, and no machine is left running after it
  python launch/tpu/tpu_pod.py --dry-run ...
                                    print the commands of all this, do nothing
  python launch/tpu/tpu_pod.py --name istanas --zone us-west4-a --stop
                                    make the job save a checkpoint and end
  python launch/tpu/tpu_pod.py --name istanas --zone us-west4-a --delete
                                    delete the slice

It needs gcloud, logged in (`gcloud auth login`) and with the Cloud TPU API enabled, and for slices
of several hosts the key in the agent (`ssh-add ~/.ssh/google_compute_engine`).
"""


@dataclass(frozen=True)
class Generation:
    """A kind of TPU, by the beginning of its accelerator types."""

    runtime: str  # the system image for jax: cloud.google.com/tpu/docs/runtimes
    counts: frozenset[int]  # what may follow: cores up to v5p, chips of v5e and v6e
    per_host: int  # of slices of several hosts
    one_host: int = 0  # the largest slice on one host, if that is more

    def hosts(self, count: int) -> int:
        return 1 if count <= max(self.one_host, self.per_host) else count // self.per_host


POWERS = frozenset({8, 32, 128, 256, 512})
CHIPS = frozenset({1, 4, 8, 16, 32, 64, 128, 256})
GENERATIONS = {
    "v2": Generation("tpu-ubuntu2204-base", POWERS, per_host=8),
    "v3": Generation("tpu-ubuntu2204-base", POWERS | {64, 1024, 2048}, per_host=8),
    "v4": Generation("tpu-ubuntu2204-base", frozenset(range(8, 8193, 8)), per_host=8),
    "v5litepod": Generation("v2-alpha-tpuv5-lite", CHIPS, per_host=4, one_host=8),
    "v5p": Generation("v2-alpha-tpuv5", frozenset(range(8, 12289, 8)), per_host=8),
    "v6e": Generation("v2-alpha-tpuv6e", CHIPS, per_host=4, one_host=8),
}
PATTERNS = {  # option: what it must look like, and an example
    "name": (r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", "small letters, digits and hyphens, as istanas-1"),
    "zone": (r"[a-z]+-[a-z]+[0-9]+-[a-z]", "a zone, as us-west4-a"),
    "project": (r"([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]", "the id of a project"),
    "runtime_version": (r"[a-z0-9][-a-z0-9.]*", "a TPU software version, as v2-alpha-tpuv6e"),
    "network": (r"[a-z][-a-z0-9_.:/]*", "the name of a network"),
    "subnetwork": (r"[a-z][-a-z0-9_.:/]*", "the name of a subnetwork"),
    "service_account": (r"[^@\s]+@[^@\s]+\.[^@\s]+", "the address of a service account"),
}
# Flags of `queued-resources create` that this program gives by itself.
OWN_FLAGS = (
    "node-id", "accelerator-type", "runtime-version", "labels", "spot", "network", "subnetwork",
    "service-account", "zone", "project", "quiet",
)  # fmt: skip
BUCKET = r"gs://[a-z0-9][-a-z0-9_.]{1,220}[a-z0-9]/[^\s*?\[\]#]*[^\s*?\[\]#/]/?"
JOBS = ("run", "search", "retrain")  # the commands that work in a folder


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="tpu_pod",
        usage="python launch/tpu/tpu_pod.py --name NAME --zone ZONE [options] [-- COMMAND ...]",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--name", help="of the slice; one that is there is used, and never deleted if it was not "
        "made by this program")  # fmt: skip
    add("--zone", help="e.g. us-west4-a")
    add("--project", help="default: gcloud's")
    add("--accelerator", metavar="TYPE", help="e.g. v5litepod-32: one of "
        f"{', '.join(GENERATIONS)}, and its number of chips (v5litepod, v6e) or cores")  # fmt: skip
    add("--runtime-version", metavar="V", help="TPU software; default: the one for jax")
    add("--spot", action="store_true", help="cheaper, may be preempted, is then created again")
    for name in ("network", "subnetwork", "service-account"):
        add(f"--{name}", help="of the slice; default: gcloud's")
    add("--create-flag", action="append", default=[], metavar="FLAG", help="another flag for "
        "creating the slice, as --create-flag=--reserved; may be given several times")  # fmt: skip
    add("--env", action="append", default=[], metavar="NAME=VALUE", help="environment variable of "
        "the job, as LIBTPU_INIT_ARGS or XLA_FLAGS; may be given several times")  # fmt: skip
    add("--fetch", metavar="DIR", help="bring the job's workdir here when it has ended")
    add("--delete", action="store_true", help="delete the slice when the job has ended, also if it "
        "failed; without a job: now")  # fmt: skip
    add("--stop", action="store_true", help="make the running job save and end; start nothing")
    add("--every", type=float, default=30, metavar="SECONDS", help="between looks; default 30")
    add("--restarts", type=int, default=100, metavar="N", help="at most; default 100")
    add("--dry-run", action="store_true", help="print every command, do nothing")
    add("job", nargs="*", metavar="-- COMMAND ...", help="of `python -m istanas_jax`, e.g. run "
        "--config configs/imagenet_one_stage.py --workdir gs://BUCKET/PATH")  # fmt: skip
    return made


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the arguments; what comes after `--` is the job, whatever it looks like."""
    own, job = argv, []
    if "--" in argv:
        own, job = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    args = parser().parse_args(own)
    if args.job:
        parser().error(f"the job comes after `--`: -- {shlex.join(args.job)}")
    args.job = job
    args.workdir = option(job, "workdir")
    generation, _, count = (args.accelerator or "").rpartition("-")
    args.hosts = None
    known = GENERATIONS.get(generation)
    if known and count.isdecimal() and int(count) in known.counts:
        args.hosts = known.hosts(int(count))
        args.runtime_version = args.runtime_version or known.runtime
    return args


def option(job: list[str], name: str) -> str | None:
    """The value of `--name` among the arguments of the job, the last if there are several."""
    value = None
    for word, following in zip_longest(job, job[1:]):
        if word == f"--{name}":
            value = following
        elif word.startswith(f"--{name}="):
            value = word.partition("=")[2]
    return value


def problems(args: argparse.Namespace) -> list[str]:
    """One sentence for everything that is wrong."""
    found = []
    for name, (pattern, meaning) in PATTERNS.items():
        value, flag = getattr(args, name), f"--{name.replace('_', '-')}"
        if value is None and name in ("name", "zone"):
            found.append(f"{flag} is missing: {meaning}.")
        elif value is not None and not re.fullmatch(pattern, value):
            found.append(f"{flag} {value!r} is not {meaning}.")
    if not 0 < args.every < float("inf"):
        found.append(f"--every {args.every} is not a number of seconds above 0.")
    if args.restarts < 0:
        found.append(f"--restarts {args.restarts} is below 0.")
    for flag in args.create_flag:
        if not re.fullmatch(r"--[a-z][-a-z0-9]*(=[^\0]*)?", flag):
            found.append(f"--create-flag {flag!r} is not a flag, as --create-flag=--reserved.")
        elif flag[2:].partition("=")[0] in OWN_FLAGS:
            found.append(f"--create-flag {flag!r} is given by this program, from its own options.")
    for variable in args.env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*=[^\0]*", variable):
            found.append(f"--env {variable!r} is not NAME=VALUE.")
    found += _accelerator_problems(args)
    found += _job_problems(args) if args.job else []
    if args.job and args.stop:
        found.append("--stop starts nothing: leave the job out.")
    if not args.job and not args.stop and not args.delete:
        found.append("there is nothing to do: give a job after `--`, or --stop, or --delete.")
    if args.fetch and not (args.workdir or "").startswith("gs://"):
        found.append("--fetch needs a job with --workdir gs://BUCKET/PATH.")
    return found


def _accelerator_problems(args) -> list[str]:
    if args.accelerator is None:
        return ["--accelerator is missing: a type, as v5litepod-32."] if args.job else []
    if args.hosts is not None:
        return []
    generation = args.accelerator.rpartition("-")[0]
    if generation not in GENERATIONS:
        known = ", ".join(GENERATIONS)
        return [f"--accelerator {args.accelerator!r} is not one of {known} with its size."]
    sizes = sorted(GENERATIONS[generation].counts)
    shown = ", ".join(map(str, sizes)) if len(sizes) < 20 else f"multiples of 8 up to {sizes[-1]}"
    return [f"--accelerator {args.accelerator!r}: the size of {generation} is one of {shown}."]


def _job_problems(args) -> list[str]:
    found = []
    if any("\0" in word for word in args.job):
        found.append("the job has a zero byte in it.")
    if args.job[0].startswith("-"):
        found.append(f"the job begins with {args.job[0]!r}, not with a command, as run.")
    elif args.job[0] in JOBS:
        found += _workdir_problems(args)
        config = option(args.job, "config")
        found += ["the job has no --config."] if config is None else _config_problems(config)
    if missing := _git("ls-files", "--deleted"):
        found.append(f"{missing[0]} is tracked by git and not there: restore it, or `git rm` it.")
    return found


def _workdir_problems(args) -> list[str]:
    if args.workdir is None:
        return ["the job has no --workdir."]
    if args.workdir.startswith("gs://"):
        if re.fullmatch(BUCKET, args.workdir):
            return []
        return [f"--workdir {args.workdir!r} is not gs://BUCKET/PATH."]
    for wrong, why in (
        ((args.hosts or 1) > 1, f"{args.hosts} hosts share it"),
        (args.spot, "a preemption would lose it"),
        (args.delete, "--delete would lose it"),
    ):
        if wrong:
            return [f"--workdir {args.workdir!r} must be gs://BUCKET/PATH: {why}."]
    return []


def _config_problems(config: str) -> list[str]:
    path = config.partition(":")[0]
    if "/" not in path and not path.endswith(".py"):
        path = f"configs/{path}.py"  # named without its path
    if Path(path).is_absolute() or ".." in Path(path).parts:
        return [f"--config {config!r} is not a path inside the checkout, as configs/digits.py."]
    if not (ROOT / path).is_file():
        return [f"--config {config!r}: there is no {path} in the checkout."]
    tracked = _git("ls-files", "--", path)
    if tracked is None:
        return ["git is missing, or this is no git checkout: its tracked files are what is copied."]
    if not tracked:
        return [
            f"--config {config!r} is not tracked by git, and would not be copied: `git add` it."
        ]
    return []


def _git(*command: str) -> list[str] | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *command], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.splitlines()
