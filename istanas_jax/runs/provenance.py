"""Where a run comes from, recorded for whoever reads its folder later."""

import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path

from istanas_jax.config.files import defaults
from istanas_jax.devices.parallel import Devices
from istanas_jax.storage.checkpoints import VERSIONS


def provenance(devices: Devices) -> dict:
    """This process's command, config file with its defaults, versions, commit and devices."""
    command, config, overrides = command_line(sys.argv)
    return {
        "command": command,
        "config": config,
        "overrides": overrides,
        "defaults": defaults(config),
        "started": datetime.datetime.now(datetime.UTC).isoformat(),
        "versions": VERSIONS | {"python": platform.python_version()},
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "commit": commit(),
        "devices": f"{len(devices)} x {devices.devices[0].device_kind}",
        "hosts": devices.hosts,
        "acts_as": devices.acts_as,
    }


def command_line(argv: list[str]) -> tuple[list[str] | None, str | None, list[str]]:
    """The command as one would type it, and its config; None if this is not our program."""
    program = Path(argv[0])
    if program.name != "istanas" and program.parent.name != "istanas_jax":
        return None, None, []
    arguments = argv[1:]
    config = None
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if before == "--config":
            config = argument
        elif argument.startswith("--config="):
            config = argument.partition("=")[2]
    overrides = [argument for argument in arguments if argument.startswith("--config.")]
    return ["python", "-m", "istanas_jax", *arguments], config, overrides


def commit() -> str | None:
    """The commit of the checkout this package runs from, with + if files have changed; or None."""
    root = Path(__file__).parent.parent.parent
    if not (root / ".git").exists():
        return None
    git = ["git", "-C", str(root)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], **_READ)
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], **_READ)
    except (OSError, subprocess.SubprocessError):  # no git, or not the owner
        return None
    return head.stdout.strip() + "+" * bool(changed.stdout.strip())


_READ = {"capture_output": True, "text": True, "timeout": 10, "check": True}
