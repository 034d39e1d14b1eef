"""Run istanas_jax on a Cloud TPU slice: `python launch/tpu/tpu_pod.py --help`.

Every look at the job is a short command of its own, so nothing hangs when a host disappears:
"status" on all hosts, then what the first one has printed since.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import shlex
import shutil
import signal
import sys
import time
from functools import partial

from tpu_arguments import parse, problems
from tpu_slice import CommandError, Rehearsal, Seen, Shell, Slice

PATIENCE = 6  # looks until what failed is no preemption that has just begun
TRIES = 20  # failures of gcloud in a row until the connection counts as lost
CHUNK = 1_000_000  # bytes that a host gives at once
SHOWN = 3000  # bytes of earlier output, when a job is followed again
SIGNALLED = (130, 143)  # codes of a job that was told to end


class PodError(Exception):
    """Says in a sentence what cannot be done."""


class LostContact(PodError):
    """Nothing can be said about the slice and the job."""


class Pod:
    """A job on a slice.

    Args:
      say: shows text to the user.
      sleep: waits for a number of seconds.
    """

    def __init__(self, args, slice_: Slice, say, sleep):
        self.args = args
        self.name = args.name
        self.slice = slice_
        self.say = say
        self.sleep = sleep
        self.key = hashlib.sha256("\0".join([*args.env, *args.job]).encode()).hexdigest()[:12]
        self.in_touch = False  # gcloud has worked once
        self.started = False  # the job, by this or an earlier call
        self.offset = 0  # bytes of the first host's output that have been shown
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def run(self) -> int:
        """Start the job, or follow it if it is running, to its end; returns its exit code."""
        for restarts in range(self.args.restarts + 1):
            self.obtain()
            try:
                self.begin()
                outcome = self.follow()
            except CommandError:
                seen = self.observe()
                if seen.state == "ready":
                    raise
                outcome = self.why_gone(seen)
            if isinstance(outcome, int):
                return outcome
            self.say(f"{self.name}: {outcome}; starting again ({restarts + 1})\n")
        raise PodError(f"{self.name}: {outcome}, and --restarts allows no more")

    def obtain(self) -> None:
        """Wait until the slice is ready; create it if it is not there, or not any more."""
        before = None
        while True:
            seen = self.observe()
            if seen.detail and seen != before:
                self.say(f"{self.name}: {seen.detail}\n")
            before = seen
            if seen.state == "ready":
                if self.args.delete and not seen.own:
                    self.say(f"{self.name} was not made by this program, and is not deleted\n")
                return
            if seen.state == "failed":
                raise PodError(f"{self.name} could not be created: {seen.detail}")
            if seen.state == "absent":
                wanted = "spot slice" if self.args.spot else "slice"
                self.say(f"{self.name}: asking for a {wanted} {self.args.accelerator} ...\n")
                self.slice.create()
            elif seen.state == "gone" and not seen.own:
                raise PodError(f"{self.name} is {seen.detail} and was not made by this program")
            elif seen.state == "gone":
                self.slice.delete()
            else:
                self.wait()

    def begin(self) -> None:
        """Start the job, unless it is running already."""
        states = self.patiently(self.slice.status)
        running = {key for key, state in states if state == "running"}
        if running - {self.key}:
            raise PodError(f"another job is running on {self.name}: end it with --stop first")
        if running and all(state == "running" for _, state in states):
            self.say(f"{self.name}: the job is running already\n")
            size = self.patiently(partial(self.slice.worker, "size", worker="0"))
            self.offset, self.started = max(0, int(size) - SHOWN), True
            return
        if running:  # on some hosts only
            self.end()
        self.say(f"{self.name}: copying the checkout ...\n")
        self.slice.copy_checkout()
        self.say(f"{self.name}: installing ...\n")
        self.slice.worker("install")
        self.say(f"{self.name}: starting {shlex.join(self.args.job)}\n")
        self.started = True
        self.slice.worker("start", self.key, *self.args.job)
        self.offset = 0

    def follow(self) -> int | str:
        """Show what the first host prints until the job ends; returns its code or the reason."""
        doubts = 0
        while True:
            states = [state for _, state in self.patiently(self.slice.status)]
            self.show_output()
            codes = [int(state.split()[1]) for state in states if state.startswith("exited")]
            if states and codes == [0] * len(states):
                return 0
            if states and all(state in ("running", "exited 0") for state in states):
                self.wait()
                continue
            # One host may fail because another is being preempted, which is seen only later.
            seen = self.observe()
            if seen.state != "ready":
                return self.why_gone(seen)
            if not any(codes):
                self.end()
                return "a host was started anew"
            doubts += 1
            if doubts < PATIENCE:
                self.wait()
                continue
            self.say(self.slice.worker("failure").decode(errors="replace"))
            self.end()
            return next((code for code in codes if code not in (0, *SIGNALLED)), max(codes))

    def show_output(self) -> None:
        """Show what the first host has printed since the last time."""
        piece = b" " * CHUNK
        while len(piece) == CHUNK:
            ask = partial(self.slice.worker, "output", str(self.offset), worker="0")
            piece = self.patiently(ask)
            self.offset += len(piece)
            self.say(self.decoder.decode(piece))

    def end(self) -> None:
        """Make the job save and end on every host; by force if it has not in 10 minutes."""
        for signal_name, seconds in (("TERM", 600), ("KILL", 60), (None, 0)):
            until = time.monotonic() + seconds
            if not self.is_running():
                return
            if signal_name:
                self.patiently(partial(self.slice.worker, "stop", signal_name))
            while self.is_running() and time.monotonic() < until:
                self.wait()
        raise PodError(f"the job on {self.name} cannot be ended")

    def is_running(self) -> bool:
        """Whether the job runs on any of the hosts."""
        return any(state == "running" for _, state in self.patiently(self.slice.status))

    def delete(self) -> None:
        """Delete the slice if it was made by this program."""
        seen = self.observe()
        if seen.state == "absent":
            self.say(f"{self.name} is not there\n")
        elif seen.own:
            self.say(f"{self.name}: deleting ...\n")
            self.slice.delete()
        else:
            raise PodError(f"{self.name} was not made by this program: delete it yourself")

    def observe(self) -> Seen:
        return self.patiently(self.slice.observe)

    def patiently(self, ask):
        """Ask until there is an answer, through lost connections; CommandError without a slice."""
        for _ in range(TRIES):
            try:
                answer = ask()
                self.in_touch = True
                return answer
            except CommandError as error:
                if not self.in_touch or self.is_gone():
                    raise
                problem = error
            self.wait()
        raise LostContact(f"no connection to {self.name}: {problem}")

    def is_gone(self) -> bool:
        """Whether the slice is gone for certain."""
        try:
            return self.slice.observe().state not in ("ready", "waiting")
        except CommandError:
            return False

    def why_gone(self, seen: Seen) -> str:
        """What became of the slice, if that is a reason to create it again."""
        if seen.state == "absent" or seen.detail == "DELETING":
            raise PodError(f"{self.name} was deleted by somebody else")
        return f"the slice is {seen.detail}"

    def wait(self) -> None:
        self.sleep(self.args.every)


def main(argv: list[str]) -> int:
    args = parse(argv)
    found = problems(args)
    if not args.dry_run and not shutil.which("gcloud"):
        found.append("gcloud is not installed: see cloud.google.com/sdk/docs/install.")
    if found:
        for sentence in found:
            print(f"tpu_pod: {sentence}", file=sys.stderr)
        return 2
    if args.dry_run:
        pod = Pod(args, Slice(args, Rehearsal()), say=lambda text: None, sleep=lambda _: None)
    else:
        pod = Pod(args, Slice(args, Shell()), say=say, sleep=time.sleep)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        return act(pod)
    except KeyboardInterrupt:
        print(f"\n{left_alone(pod)}", file=sys.stderr)
        return 130


def act(pod: Pod) -> int:
    """Do what the arguments ask for; deleting comes last, and after failures too."""
    args, code = pod.args, 0
    try:
        if args.job:
            code = pod.run()
        elif args.stop:
            if pod.observe().state != "ready":
                raise PodError(f"{args.name} is not there or not ready: no job is running")
            pod.end()
            pod.say(f"{args.name}: no job is running\n")
    except LostContact as error:
        print(f"tpu_pod: {error}\n{left_alone(pod)}", file=sys.stderr)
        return 1
    except (PodError, CommandError) as error:
        print(f"tpu_pod: {error}", file=sys.stderr)
        code = 1
    for wanted, do in ((args.fetch and pod.started, fetch), (args.delete, Pod.delete)):
        try:
            if wanted:
                do(pod)
        except (PodError, CommandError) as error:
            print(f"tpu_pod: {error}", file=sys.stderr)
            code = code or 1
    if args.job and not args.delete:
        pod.say(f"{args.name} goes on costing; {again(args, '--delete')} deletes it\n")
    return code


def fetch(pod: Pod) -> None:
    pod.say(f"bringing {pod.args.workdir} to {pod.args.fetch} ...\n")
    if not pod.args.dry_run:
        os.makedirs(pod.args.fetch, exist_ok=True)
    pod.slice.fetch(pod.args.workdir, pod.args.fetch)


def left_alone(pod: Pod) -> str:
    """Say what goes on without this program, and how to get at it."""
    delete = f"{again(pod.args, '--delete')} deletes the slice."
    if not pod.args.job:
        return f"{pod.name} is left as it is; {delete}"
    if not pod.started:
        return f"{pod.name} is left as it is; the same command continues from here, {delete}"
    return (
        f"{pod.name} and its job go on; the same command follows it again, "
        f"{again(pod.args, '--stop')} ends the job, {delete}"
    )


def again(args, *flags: str) -> str:
    project = ["--project", args.project] if args.project else []
    place = ["--name", args.name, "--zone", args.zone, *project]
    return f"`{shlex.join(['python', 'launch/tpu/tpu_pod.py', *place, *flags])}`"


def say(text: str) -> None:
    print(text, end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
