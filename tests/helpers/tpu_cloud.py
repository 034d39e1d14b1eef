"""A checkout, a fake gcloud on the PATH, and launch/tpu/tpu_pod.py run against them."""

import json
import os
import shlex
import shutil
import subprocess
import sys

import fake_gcloud
from places import ROOT

SLICE = ["--name", "istanas", "--zone", "us-west4-a"]
POD = [*SLICE, "--accelerator", "v5litepod-32"]
ODD = '--config.data.name=it\'s a "$HOME" *'
JOB = ["run", "--config", "configs/digits.py:tiny", "--workdir", "gs://bucket/run", ODD]


class Ended(subprocess.Popen):
    """A process that does not outlive its `with`."""

    def __exit__(self, *error):
        self.kill()
        super().__exit__(*error)

    def read_until(self, text: str) -> None:
        """A line with this text was printed."""
        for line in self.stdout:
            if text in line:
                return
        raise AssertionError(f"it ended without {text!r}")


class Cloud:
    """A checkout, a fake gcloud and what it was asked."""

    def __init__(self, folder):
        self.checkout, self.folder, self.bin = (folder / n for n in ("checkout", "cloud", "bin"))
        for path in (self.folder, self.bin, self.folder / "bucket"):
            path.mkdir()
        shutil.copytree(ROOT / "launch", self.checkout / "launch")
        (self.checkout / "configs").mkdir()
        for name in ("requirements.txt", "requirements-tpu.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, self.checkout)
        (self.checkout / "configs" / "digits.py").touch()
        for command in (["init", "--quiet"], ["add", "."]):
            subprocess.run(["git", *command], cwd=self.checkout, check=True)
        (self.checkout / "configs" / "untracked.py").touch()
        program = self.bin / "gcloud"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {fake_gcloud.__file__} "$@"\n')
        python = self.folder / "python"
        python.write_text(fake_gcloud.PYTHON)
        for path in (program, python):
            path.chmod(0o755)

    @property
    def environment(self):
        path = f"{self.bin}:{os.environ['PATH']}"
        return os.environ | {"PATH": path, "FAKE_CLOUD": str(self.folder)}

    def set(self, **settings):
        (self.folder / "settings.json").write_text(json.dumps(settings))

    def start(self, *arguments, every="0.05"):
        command = [sys.executable, "launch/tpu/tpu_pod.py", "--every", every, *arguments]
        return Ended(
            command, cwd=self.checkout, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *arguments, code=0):
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, out + err
        return out, err

    def calls(self) -> list[list[str]]:
        file = self.folder / "calls.jsonl"
        return list(map(json.loads, file.read_text().splitlines())) if file.exists() else []

    def verbs(self) -> list[str]:
        """What was asked, without looks."""
        short = []
        for call in self.calls():
            verb = " ".join(call[2:4] if call[0] == "compute" else call[:2])
            command = next((w for w in call if w.startswith("--command=")), "")
            if verb.endswith("describe") or command.endswith(" status") or " output " in command:
                continue
            words = shlex.split(command.partition("=")[2])
            short.append(f"{verb} {words[2]}" if words[:1] == ["bash"] else verb)
        return short
