"""How long a user waits: from the command to the first step, to its help, to an inspected run.

The commands are started as a user starts them, in processes of their own. The first run compiles
everything; the second finds the programs of the first on the disk.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from istanas_jax.bench.costs.apart import environment_with_us

FIRST_STEP = re.compile(r"\b[1-9]\d*/\d+ steps")
COMPILED = re.compile(r"compiled in (\d+) s")
ISTANAS = (sys.executable, "-m", "istanas_jax")


def run(
    config: str, overrides: Sequence[str] = (), *, say: Callable[[str], None] = lambda line: None
) -> dict:
    """Time `--help`, a first and a second run by this config up to their first step, `inspect`."""
    with tempfile.TemporaryDirectory(prefix="istanas-start-") as folder:
        # A cache of its own: programs of earlier runs would make the first start look quick.
        environment = environment_with_us() | {"XDG_CACHE_HOME": f"{folder}/cache"}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        say("help ...")
        results = {"benchmark": "start", "config": config, "cores": os.cpu_count()}
        results["help_s"] = _seconds(("--help",), environment)
        for name in ("first", "second"):
            say(f"{name} run ...")
            given = ("run", "--config", config, *overrides, "--workdir", f"{folder}/{name}")
            results |= _until_first_step(given, environment, name)
        say("inspect ...")
        results["inspect_s"] = _seconds(("inspect", f"{folder}/second"), environment)
        kept = Path(folder, "cache").rglob("*-cache")
        results["programs_mb"] = round(sum(path.stat().st_size for path in kept) / 2**20, 1)
    return results


def _seconds(arguments: Sequence[str], environment: dict[str, str]) -> float:
    begin = time.perf_counter()
    done = subprocess.run((*ISTANAS, *arguments), env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{arguments[0]} failed: {_last(done.stderr)}")
    return round(time.perf_counter() - begin, 2)


def _until_first_step(
    arguments: Sequence[str], environment: dict[str, str], name: str
) -> dict[str, float]:
    """Start a run, stop it in order after its first step: it leaves a checkpoint."""
    begin, said, results = time.perf_counter(), [], {}
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    command = (*ISTANAS, *arguments)
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        try:
            for line in process.stderr:
                said.append(line)
                if compiled := COMPILED.search(line):
                    results.setdefault(f"{name}_compile_s", float(compiled[1]))
                if FIRST_STEP.search(line) and f"{name}_s" not in results:
                    results[f"{name}_s"] = round(time.perf_counter() - begin, 2)
                    process.send_signal(signal.SIGINT)
        finally:
            if f"{name}_s" not in results:
                process.kill()
    if f"{name}_s" not in results:
        raise ValueError(f"the run ended before its first step: {_last(''.join(said))}")
    return results


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["no word of it"])[-1]


def table(results: dict) -> str:
    """Format the results as text for people."""
    first, second = (_of_it_compiling(results, name) for name in ("first", "second"))
    return "\n".join(
        [
            f"seconds from the command, {results['config']}, {results['cores']} cores",
            f"  --help                        {results['help_s']:.2f}",
            f"  first run, to its first step  {results['first_s']:.1f}{first}",
            f"  second run, the same          {results['second_s']:.1f}{second}",
            f"  inspect                       {results['inspect_s']:.2f}",
            f"  programs kept on the disk     {results['programs_mb']:.1f} MB",
        ]
    )


def _of_it_compiling(results: dict, name: str) -> str:
    key = f"{name}_compile_s"
    return f", {results[key]:.0f} s of it compiling" if key in results else ""
