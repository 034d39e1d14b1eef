"""A Cloud TPU slice: gcloud looks at it, creates and deletes it, and runs commands on it."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

from tpu_arguments import ROOT

LABEL = ("made-by", "istanas-tpu-pod")  # so that a later call knows what it may delete
HOME = ".istanas_pod"  # on every host, in the home folder: checkout/ and job/
WORKER = f"{HOME}/checkout/launch/tpu/tpu_worker.sh"
# States of a node; those not listed here pass by themselves.
READY = {"READY"}
GONE = {"PREEMPTED", "TERMINATED", "STOPPED", "STOPPING", "HIDDEN", "HIDING"}
# States of a queued resource, looked at while there is no node.
SUSPENDED = {"SUSPENDING", "SUSPENDED"}


class CommandError(Exception):
    """A command that failed, with the end of what it said."""

    def __init__(self, command: list[str], code: int, said: str):
        last = [line for line in said.strip().splitlines() if line.strip()][-8:]
        self.said = said
        shown = shlex.join(command)
        super().__init__("\n".join([f"this command ended with code {code}: {shown}", *last]))


class Seen(NamedTuple):
    """State of a slice."""

    state: str  # absent, waiting, ready, gone or failed
    detail: str = ""  # in gcloud's words
    own: bool = False  # made by this program


class Shell:
    """Runs commands and returns what they print."""

    def run(self, command: list[str]) -> bytes:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise CommandError(command, done.returncode, done.stderr.decode(errors="replace"))
        return done.stdout

    def pipe(self, first: list[str], second: list[str]) -> None:
        self.run(["bash", "-c", f"set -o pipefail; {shlex.join(first)} | {shlex.join(second)}"])


class Rehearsal(Shell):
    """Prints the commands, and answers as a slice would that is created for the job."""

    def __init__(self):
        self.created = self.started = False

    def run(self, command: list[str]) -> bytes:
        print(shlex.join(command))
        verb, last = command[4], command[-1]
        self.created |= verb == "create"
        self.started |= " start " in last
        if verb == "describe" and not self.created:
            raise CommandError(command, 1, "NOT_FOUND")
        if verb == "describe":
            return json.dumps({"state": "READY", "labels": dict([LABEL])}).encode()
        if last.endswith(" status") and self.started:
            return b"istanas-job host key exited 0"
        return b""

    def pipe(self, first: list[str], second: list[str]) -> None:
        print(f"{shlex.join(first)} | {shlex.join(second)}")


class Slice:
    """The slice that the arguments name."""

    def __init__(self, args: Namespace, shell: Shell):
        self.args = args
        self.shell = shell
        self.where = [f"--zone={args.zone}", "--quiet"]
        if args.project:
            self.where.append(f"--project={args.project}")

    def observe(self) -> Seen:
        node = self._describe("tpu-vm")
        if node is not None:
            state = node.get("state", "UNKNOWN")
            own = node.get("labels", {}).get(LABEL[0]) == LABEL[1]
            condition = "ready" if state in READY else "gone" if state in GONE else "waiting"
            return Seen(condition, state, own)
        request = self._describe("queued-resources")
        if request is None:
            return Seen("absent")
        status = request.get("state", {})
        state = status.get("state", "UNKNOWN")
        nodes = request.get("tpu", {}).get("nodeSpec", [{}])
        own = nodes[0].get("node", {}).get("labels", {}).get(LABEL[0]) == LABEL[1]
        if state == "FAILED":
            why = status.get("failedData", {}).get("error", {}).get("message", "no reason is given")
            return Seen("failed", why, own)
        return Seen("gone" if state in SUSPENDED else "waiting", state, own)

    def _describe(self, what: str) -> dict | None:
        command = self._gcloud(what, "describe", self.args.name, "--format=json")
        try:
            return json.loads(self.shell.run(command))
        except CommandError as error:
            if "NOT_FOUND" in error.said:
                return None
            raise

    def create(self) -> None:
        """Request the slice through the queue, as Google recommends, spot or not."""
        args = self.args
        flags = [
            f"--node-id={args.name}",
            f"--accelerator-type={args.accelerator}",
            f"--runtime-version={args.runtime_version}",
            f"--labels={'='.join(LABEL)}",
        ]
        flags += ["--spot"] if args.spot else []
        for name in ("network", "subnetwork", "service_account"):
            if value := getattr(args, name):
                flags.append(f"--{name.replace('_', '-')}={value}")
        flags += args.create_flag
        self.shell.run(self._gcloud("queued-resources", "create", args.name, *flags))

    def delete(self) -> None:
        """Delete the request, and its node with it."""
        self.shell.run(self._gcloud("queued-resources", "delete", self.args.name, "--force"))

    def copy_checkout(self) -> None:
        """Copy the files that git tracks, as they are now, to every host."""
        with tempfile.TemporaryDirectory() as private:  # others may write to the folder it is in
            archive = str(Path(private, "istanas_pod.tar.gz"))
            self.shell.pipe(
                ["git", "-C", str(ROOT), "ls-files", "-z"],
                ["tar", "-C", str(ROOT), "--null", "-T", "-", "-czf", archive],
            )
            target = f"{self.args.name}:istanas_pod.tar.gz"
            self.shell.run(self._gcloud("tpu-vm", "scp", archive, target, "--worker=all"))
        checkout = f"{HOME}/checkout"
        self.ssh(
            f"mkdir -p {checkout} && "
            f"find {checkout} -mindepth 1 -maxdepth 1 ! -name .venv-tpu -exec rm -rf {{}} + && "
            f"tar -xzf istanas_pod.tar.gz -C {checkout} && rm istanas_pod.tar.gz"
        )

    def worker(self, *words: str, worker: str = "all") -> bytes:
        """Run a command of tpu_worker.sh, with the environment of the job if it starts it."""
        variables = self.args.env if words[0] == "start" else []
        begin = ["env", *variables] if variables else []
        return self.ssh(shlex.join([*begin, "bash", WORKER, *words]), worker)

    def status(self) -> list[tuple[str, str]]:
        """Key and state of the job on every host; empty before anything was copied there."""
        command = f"test ! -e {WORKER} || bash {WORKER} status"
        lines = [line.split(maxsplit=3) for line in self.ssh(command).decode().splitlines()]
        return [(line[2], line[3]) for line in lines if line[:1] == ["istanas-job"]]

    def fetch(self, workdir: str, folder: str) -> None:
        project = [f"--project={self.args.project}"] if self.args.project else []
        command = ["gcloud", "storage", "rsync", "--recursive", "--quiet", *project]
        self.shell.run([*command, workdir, folder])

    def ssh(self, command: str, worker: str = "all") -> bytes:
        flags = [f"--worker={worker}", f"--command={command}"]
        return self.shell.run(self._gcloud("tpu-vm", "ssh", self.args.name, *flags))

    def _gcloud(self, what: str, verb: str, *rest: str) -> list[str]:
        head, tail = list(rest), []
        if head and head[-1].startswith("--command="):  # last, where it is best read
            tail = [head.pop()]
        return ["gcloud", "compute", "tpus", what, verb, *head, *self.where, *tail]
