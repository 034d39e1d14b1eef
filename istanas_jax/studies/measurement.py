"""One measurement of `study cost`, in a process of its own.

Run as `python -m istanas_jax.studies.measurement`.

Reads a config as JSON from its input and writes measurements as JSON to its output. It has a
process of its own so that its memory is that of one step, and so that running out of memory ends
nothing but this step.
"""

import json
import sys

import jax
from ml_collections import ConfigDict

from istanas_jax.bench import methods
from istanas_jax.devices.parallel import Devices
from istanas_jax.runs.provenance import provenance


def measure(config: ConfigDict, steps: int) -> dict:
    """Measure as `bench step --method` does; if memory runs out, `out_of_memory` says so."""
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
