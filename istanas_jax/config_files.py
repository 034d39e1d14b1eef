"""Read a config file and the overrides given on the command line.

`configs/cifar10_two_stage.py:tiny` names a file and a variant of it; `--config.search.epochs=3`
changes one of its keys. ml_collections does the work; here its errors become one sentence each.
"""

import difflib
import json
import os
import sys
from collections.abc import Sequence

from absl import flags
from ml_collections import ConfigDict, config_flags

from istanas_jax.methods import METHODS, OF_ISTA


class ConfigError(ValueError):
    """A config that cannot be used, said in one sentence."""


def load_config(spec: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """The config of `spec` ("FILE" or "FILE:VARIANT") with `overrides` applied, locked.

    Args:
      spec: the file must define get_config(variant); it may import files beside it.
      overrides: arguments of the form `--config.KEY=VALUE`.
    """
    path = spec.split(":", 1)[0]
    if not os.path.isfile(path):
        raise ConfigError(f"config file {path} does not exist")
    config = _parse(spec, ())
    known = keys(config)
    for override in overrides:
        key = override.removeprefix("--config.").split("=", 1)[0]
        if key not in known:
            raise ConfigError(f"unknown config key {key}{_nearest(key, known)}")
    config = _parse(spec, overrides)
    for key in keep_method(config):
        for override in overrides:
            given = override.removeprefix("--config.").split("=", 1)[0]
            if given == key or given.startswith(f"{key}."):
                raise ConfigError(f"{given} means nothing to search.method={config.search.method}")
    return config


def defaults(spec: str | None) -> dict | None:
    """The plain config of the file in `spec`, without variant and overrides; None without one.

    A config file is a program: this is for the run that it belongs to, which keeps the answer in
    its folder. Whoever looks at the folder later must not run the file.
    """
    if spec is None:
        return None
    try:
        return json.loads(load_config(spec.split(":", 1)[0]).to_json_best_effort())
    except Exception:  # without its variant it may fail in any way, and the run does not need it
        return None


def keep_method(config: ConfigDict) -> list[str]:
    """Leave out what belongs to search methods that are not chosen; the keys that are gone."""
    if "search" not in config or "method" not in config.search:
        return []
    chosen = config.search.method
    foreign = [f"search.{name}" for name in METHODS if name != chosen]
    foreign += OF_ISTA if chosen != "ista" else ()
    gone = []
    with config.unlocked():
        for key in foreign:
            part, _, name = f".{key}".rpartition(".")
            holder = config[part[1:]] if part else config
            if name in holder:
                del holder[name]
                gone.append(key)
    return gone


def keys(config: ConfigDict) -> list[str]:
    """All keys, those of nested parts as `part.key`."""
    flat = []
    for name, value in config.items():
        flat += (
            [f"{name}.{key}" for key in keys(value)] if isinstance(value, ConfigDict) else [name]
        )
    return flat


def _nearest(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    if not close:  # perhaps the right name in the wrong part
        last = {k.rsplit(".", 1)[-1]: k for k in reversed(known)}
        close = [last[m] for m in difflib.get_close_matches(key.rsplit(".", 1)[-1], last, 1, 0.5)]
    return f", did you mean {close[0]}?" if close else f"; there are: {', '.join(known)}"


def _parse(spec: str, overrides: Sequence[str]) -> ConfigDict:
    argv = ["istanas", f"--config={spec}", *overrides]
    values = flags.FlagValues()
    sys.path.insert(0, os.path.dirname(os.path.abspath(spec.split(":", 1)[0])))
    try:
        config_flags.DEFINE_config_file("config", flag_values=values, sys_argv=argv)
        values(argv)
        return values.config
    except (flags.Error, ValueError, TypeError, OSError) as error:
        last_line = str(error).strip().splitlines()[-1]
        raise ConfigError(f"config {spec}: {last_line}") from error
    finally:
        sys.path.pop(0)
