"""Read a config file and the overrides given on the command line.

`cifar10_two_stage:tiny` names a config that comes with the project and a variant of it,
`mine.py:tiny` a file of your own; `--config.search.epochs=3` changes one of its keys. A config file
is a Python program and is run: use only those you trust. Whatever is wrong with it or with an
override is told in one sentence.
"""

import difflib
import json
from collections.abc import Sequence

from absl import flags
from ml_collections import ConfigDict, config_flags

from istanas_jax.config.bounds import ConfigError, check_values, not_read_by
from istanas_jax.config.program import run_file
from istanas_jax.config.renamed import new_name

# For --help, wherever a config file is asked for.
TRUST = "a config file is a Python program, and naming it runs it: use only one that you trust"


def load_config(spec: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """The config of `spec` with `overrides` applied, locked.

    Args:
      spec: "FILE" or "FILE:VARIANT", where FILE is a path or the name of a config that comes with
        the project. It must define get_config(variant), and may import files beside it and, by
        `from configs import paper`, those that come with the project.
      overrides: arguments of the form `--config.KEY=VALUE`.

    >>> load_config("digits", ["--config.search.epochs=10"]).search.epochs
    10
    """
    config = run_file(spec)
    known = keys(config)
    for override in overrides:
        key = override.removeprefix("--config.").split("=", 1)[0]
        if key not in known:
            raise ConfigError(f"unknown config key {key}{_nearest(key, known)}")
    config = _override(spec, config, overrides)
    for key in keep_method(config):
        for override in overrides:
            given = override.removeprefix("--config.").split("=", 1)[0]
            if given == key or given.startswith(f"{key}."):
                raise ConfigError(f"{given} means nothing to search.method={config.search.method}")
    check_values(config)
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
    """Remove the keys of search methods that are not chosen; return which were removed."""
    if "search" not in config or "method" not in config.search:
        return []
    gone = []
    with config.unlocked():
        for key in not_read_by(config.search.method):
            name = key.removeprefix("search.")
            if name in config.search:
                del config.search[name]
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
    if (now := new_name(key)) in known:
        return f", it is now called {now}"
    close = difflib.get_close_matches(key, known, n=1)
    if not close:  # perhaps the right name in the wrong part
        last = {k.rsplit(".", 1)[-1]: k for k in reversed(known)}
        close = [last[m] for m in difflib.get_close_matches(key.rsplit(".", 1)[-1], last, 1, 0.5)]
    return f", did you mean {close[0]}?" if close else f"; there are: {_beside(key, known)}"


def _beside(key: str, known: list[str]) -> str:
    """List the keys beside this one, or all of the config's; parts as `part.*`."""
    part = key
    while part and not any(k.startswith(f"{part}.") for k in known):
        part = part.rpartition(".")[0]
    prefix = f"{part}." if part else ""
    rest = [k.removeprefix(prefix).split(".") for k in known if k.startswith(prefix)]
    return ", ".join(dict.fromkeys(prefix + k[0] + (".*" if k[1:] else "") for k in rest))


def _override(spec: str, config: ConfigDict, overrides: Sequence[str]) -> ConfigDict:
    values = flags.FlagValues()
    argv = ["istanas", *overrides]
    try:
        config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=argv)
        values(argv)
        return values.config
    except Exception as error:  # of a value that cannot be parsed: of almost any type
        last_line = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise ConfigError(f"config {spec}: {last_line}") from error
