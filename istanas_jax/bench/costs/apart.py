"""Measures a search step in a process of its own.

Its memory is then that of one step, and running out of memory ends nothing but this step. The
process is `python -m istanas_jax.bench.costs.apart`: it reads a config as JSON from its input and
writes measurements as JSON to its output.
"""

import json
import os
import subprocess
import sys

import jax
from ml_collections import ConfigDict

import istanas_jax
from istanas_jax.bench import methods
from istanas_jax.devices.parallel import Devices
from istanas_jax.runs.interrupts import Interrupted, Stop
from istanas_jax.runs.provenance import provenance
from istanas_jax.training.errors import TrainingError

KILLED = -9  # exit code of a process that the system ended for its memory
WAIT = 0.5  # seconds between two looks at whether this process is to stop


def measure_apart(config: ConfigDict, steps: int) -> dict:
    """The measurements of `bench step --method`; if memory runs out, `out_of_memory` says so."""
    code, out, err = _process(json.dumps({"config": config.to_dict(), "steps": steps}))
    if code == KILLED:
        return {"out_of_memory": "the system ended the process"}
    if code:
        last = (err.strip().splitlines() or ["no word of it"])[-1]
        raise TrainingError(f"the step could not be measured: {last}")
    return json.loads(out.splitlines()[-1])


def _process(asked: str) -> tuple[int, str, str]:
    """Run a measurement, which stops with this process; return exit code, output and errors."""
    command = [sys.executable, "-m", "istanas_jax.bench.costs.apart"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = environment_with_us()
    with Stop() as stop, subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        given: str | None = asked
        while True:
            try:
                out, err = process.communicate(given, timeout=WAIT)
                if stop.signal is None:  # otherwise it may be that which ended the process
                    return process.returncode, out, err
            except subprocess.TimeoutExpired:
                given = None  # it has it
            if stop.signal is not None:
                process.kill()
                raise Interrupted("stopped; the same command continues from there", stop.signal)


def environment_with_us() -> dict[str, str]:
    """Variables for a process that imports the same istanas_jax, wherever it is started."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(istanas_jax.__file__)))
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path}


def measure(config: ConfigDict, steps: int) -> dict:
    """Measure in this process; if memory runs out, `out_of_memory` says so."""
    try:
        return methods.run(config, steps=steps)
    except methods.OutOfMemory as error:
        return error.results | {"out_of_memory": str(error)}
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and not isinstance(error, MemoryError):
            raise
        return {"out_of_memory": str(error).splitlines()[0]}


def main() -> None:
    # Programs that are compiled already would make compiling look quick.
    jax.config.update("jax_enable_compilation_cache", False)
    asked = json.load(sys.stdin)
    results = measure(ConfigDict(asked["config"]), asked["steps"])
    about = provenance(Devices())
    kept = ("commit", "versions", "xla_flags", "devices", "started")
    print(json.dumps(results | {key: about[key] for key in kept}))


if __name__ == "__main__":
    main()
