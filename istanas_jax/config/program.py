"""Find a config file, run it, and say in one sentence what is wrong with it.

A config file may import `configs`, which is the project's own folder wherever it is installed, and
modules that lie beside the file. An import finder provides both while the file runs; `sys.path`
stays as it is. Afterwards these modules are forgotten, so that the next config file gets those
beside itself, and a package of the caller's that is called `configs` is back in its place.
"""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from istanas_jax.config.bounds import ConfigError

PACKAGE = Path(__file__).parent.parent
# The configs that come with the project: inside the package once it is installed, else beside it.
SHIPPED = next(
    (folder for folder in (PACKAGE / "configs", PACKAGE.parent / "configs") if folder.is_dir()),
    PACKAGE / "configs",
)
OWN = "configs"  # the name under which config files import them


def find_file(name: str) -> str:
    """The path of a config file, given by its path or by the name of one that is shipped."""
    if os.path.isfile(name):
        return name
    shipped = SHIPPED / f"{name}.py"
    if os.path.basename(name) == name and shipped.is_file():
        return str(shipped)
    raise ConfigError(f"config file {name} does not exist")


def run_file(spec: str) -> ConfigDict:
    """Return what get_config of the file returns.

    Raises:
      ConfigError: the file fails, whose line is then named, or does not return a config.
    """
    name, *variant = spec.split(":", 1)
    path = find_file(name)
    try:
        with _imports_of(path):
            module = module_from_spec(_file_spec("istanas_config", path))
            module.__spec__.loader.exec_module(module)
            get_config = getattr(module, "get_config", None)
            config = get_config(*variant) if callable(get_config) else None
        if not callable(get_config):
            raise ConfigError(f"{path} defines no function get_config(variant), see configs/")
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # a config file is a program: it may fail in any way
        raise ConfigError(f"config {spec}{_place(error, path)}: {_reason(error)}") from error
    if not isinstance(config, ConfigDict):
        raise ConfigError(
            f"get_config of {path} returns {_a(config)}, it must be an ml_collections.ConfigDict"
        )
    return config


def _file_spec(name: str, path: str, **package) -> ModuleSpec:
    """A module to be made from this file, whatever the file's name ends with."""
    return spec_from_file_location(name, path, loader=SourceFileLoader(name, path), **package)


class _Finder(MetaPathFinder):
    """Finds the project's own `configs`, and modules in the folder of a config file."""

    def __init__(self, folder: str):
        self.folder = folder
        self.found = {OWN}

    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        if name == OWN:
            folder = str(SHIPPED)
            return _file_spec(
                name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
            )
        spec = PathFinder.find_spec(name, [self.folder]) if path is None else None
        # As everywhere in Python, a folder without __init__.py counts only if nothing else does.
        if spec is None or (spec.loader is None and PathFinder.find_spec(name)):
            return None
        self.found.add(name)
        return spec


@contextmanager
def _imports_of(path: str) -> Iterator[None]:
    """While the config file at this path runs, it can import what the top of this module says."""
    finder = _Finder(os.path.dirname(os.path.abspath(path)))
    before = _take_modules({OWN})
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _take_modules(finder.found)
        sys.modules.update(before)


def _take_modules(roots: set[str]) -> dict[str, Any]:
    """Remove these modules and all inside them from those that are loaded, and return them."""
    names = [name for name in sys.modules if name.split(".")[0] in roots]
    return {name: sys.modules.pop(name) for name in names}


def _place(error: BaseException, path: str) -> str:
    """Name the line of the user's files that failed; empty if the file itself refused."""
    path = os.path.abspath(path)
    places = [(f.filename, f.lineno, f.line) for f in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno, ""))
    folder = os.path.dirname(path)
    own = [p for p in places if p[1] and os.path.dirname(os.path.abspath(p[0])) == folder]
    if not own or (isinstance(error, ValueError) and own[-1][2].startswith("raise ")):
        return ""
    file, line, _ = own[-1]
    where = "" if os.path.abspath(file) == path else f" of {os.path.relpath(file)}"
    return f", line {line}{where}"


def _reason(error: BaseException) -> str:
    words = " ".join(str(getattr(error, "msg", error)).split())
    if type(error) is ValueError and words:
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _a(value: Any) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
