"""A gcloud for the tests of launch/tpu/tpu_pod.py, with a cloud in the folder $FAKE_CLOUD.

Put on the PATH under the name gcloud. Every call goes to calls.jsonl. The hosts are folders, in
which commands really run, with a fake Python that installs nothing and plays the job:
it counts to `steps`, in the bucket, so that it goes on after a preemption.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

CLOUD = Path(os.environ.get("FAKE_CLOUD", "."))
SETTINGS = {
    "hosts": 2,
    "steps": 3,
    "exit": [0],  # of the job, on each slice created
    "preempt_after": [],  # looks at the job until the slice is preempted, for each slice created
    "queued": False,  # for ever
    "states": ["CREATING", "READY"],  # of a new slice, from one look to the next
    "request": "WAITING_FOR_RESOURCES",  # while there is no node yet
    "failing": [],  # words of commands that fail
}
PYTHON = """\
#!/usr/bin/env bash
# A Python that is new enough, makes environments at once, and is the job.
case "$*" in
  "-m venv "*)
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
    printf '#!/bin/sh\\necho "$@" >>"%s/pip.log"\\n' "$FAKE_CLOUD" >"$3/bin/pip"
    chmod +x "$3/bin/pip"
    ;;
  "-m istanas_jax "*)
    trap 'echo saved; exit 143' TERM
    file="$FAKE_CLOUD/bucket/step-$HOST"
    step=$(cat "$file" 2>/dev/null || echo 0)
    printf 'host %s from step %s:' "$HOST" "$step"
    printf ' <%s>' "${@:3}"
    echo
    while [ "$step" -lt "$STEPS" ]; do
      sleep 0.2
      step=$((step + 1))
      echo "$step" >"$file"
      echo "step $step"
    done
    exit "$EXIT"
    ;;
esac
"""


def main(argv: list[str]) -> int:
    settings = SETTINGS | read("settings.json", {})
    with open(CLOUD / "calls.jsonl", "a") as calls:
        calls.write(json.dumps(argv) + "\n")
    for words in settings["failing"]:
        if words in " ".join(argv):
            return fail(f"ERROR: {words} failed")
    if argv[:2] == ["storage", "rsync"]:
        Path(argv[-1], "result.json").write_text("{}")
        return 0
    assert argv[:2] == ["compute", "tpus"], argv
    what, verb, *rest = argv[2:]
    flags = dict(word[2:].partition("=")[::2] for word in rest if word.startswith("--"))
    words = [word for word in rest if not word.startswith("--")]
    assert flags["zone"] == "us-west4-a"
    assert "quiet" in flags
    if what == "queued-resources":
        return {"create": create, "delete": delete, "describe": describe_request}[verb](
            settings, words, flags
        )
    return {"describe": describe_node, "ssh": ssh, "scp": scp}[verb](settings, words, flags)


def create(settings, words, flags) -> int:
    assert read("slice.json") is None, "there is one already"
    assert flags["node-id"] == words[0]
    label = dict([flags["labels"].split("=")])
    write("slice.json", {"name": words[0], "labels": label, "looks": 0})
    return 0


def delete(settings, words, flags) -> int:
    assert "force" in flags
    kill_jobs()
    (CLOUD / "slice.json").unlink()
    return 0


def describe_request(settings, words, flags) -> int:
    made = read("slice.json")
    if made is None:
        return fail("ERROR: (gcloud) NOT_FOUND: no such request")
    node = {"node": {"labels": made["labels"]}}
    state = {"state": settings["request"]}
    if settings["request"] == "FAILED":
        state["failedData"] = {"error": {"message": "no quota"}}
    print(json.dumps({"state": state, "tpu": {"nodeSpec": [node]}}))
    return 0


def describe_node(settings, words, flags) -> int:
    made = read("slice.json")
    if made is None:
        return fail("ERROR: (gcloud) NOT_FOUND: no such node")
    waiting = settings["states"]
    state = made.get("state") or waiting[min(made["looks"], len(waiting) - 1)]
    if made["looks"] == 0:  # in the queue
        write("slice.json", made | {"looks": int(not settings["queued"])})
        return fail("ERROR: (gcloud) NOT_FOUND: no such node")
    write("slice.json", made | {"looks": made["looks"] + 1})
    print(json.dumps({"state": state, "labels": made["labels"]}))
    return 0


def hosts(settings, flags) -> list[Path]:
    numbers = range(settings["hosts"]) if flags["worker"] == "all" else [int(flags["worker"])]
    folders = [CLOUD / f"host-{number}" for number in numbers]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    return folders


def scp(settings, words, flags) -> int:
    source, target = words
    for folder in hosts(settings, flags):
        shutil.copy(source, folder / target.partition(":")[2])
    return 0


def ssh(settings, words, flags) -> int:
    made = read("slice.json")
    if made.get("state"):
        return fail(f"ERROR: the TPU is in state {made['state']}")
    if flags["command"].endswith("status") and (CLOUD / "host-0" / ".istanas_pod" / "job").exists():
        made["seen"] = made.get("seen", 0) + 1
        number = read("created", 0)
        limits = settings["preempt_after"]
        if number < len(limits) and made["seen"] > limits[number]:
            write("created", number + 1)
            write("slice.json", made | {"state": "PREEMPTED"})
            kill_jobs()
            return fail("ERROR: connection closed")
        write("slice.json", made)
    code, exits = 0, settings["exit"]
    exit_code = exits[min(read("created", 0), len(exits) - 1)]
    for folder in hosts(settings, flags):
        environment = os.environ | {
            "HOME": str(folder), "HOST": folder.name[-1], "PYTHON": str(CLOUD / "python"),
            "STEPS": str(settings["steps"]), "EXIT": str(exit_code),
        }  # fmt: skip
        done = subprocess.run(["bash", "-c", flags["command"]], cwd=folder, env=environment)
        code = code or done.returncode
    return code


def kill_jobs(cloud: Path = CLOUD) -> None:
    """The hosts disappear, with all that is on them."""
    for folder in cloud.glob("host-*"):
        job = folder / ".istanas_pod" / "job"
        for name in ("waiter", "pid"):
            if (job / name).exists() and not (job / "exit").exists():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int((job / name).read_text()), signal.SIGKILL)
        shutil.rmtree(folder)


def read(name: str, default=None):
    path = CLOUD / name
    return json.loads(path.read_text()) if path.exists() else default


def write(name: str, value) -> None:
    new = CLOUD / f"{name}.{os.getpid()}"
    new.write_text(json.dumps(value))
    new.replace(CLOUD / name)


def fail(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
