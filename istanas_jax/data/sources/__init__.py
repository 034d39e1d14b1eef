"""Where images come from: one file for each kind of data, found by itself.

A file ends with `SOURCE = ` its `contract.DataSource`; nothing else has to know of it. Importing
this package imports all of them, so libraries that take long to import are imported inside
functions.
"""

import importlib
import os
import pkgutil
from functools import cache

from ml_collections import ConfigDict

from istanas_jax.data.contract import DataSource, Encoded, Found, UnknownName
from istanas_jax.data.errors import DataError


@cache
def all_sources() -> tuple[DataSource, ...]:
    """Every source, in the order in which they are asked: by `Claim`, then by the file's name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return tuple(sorted((module.SOURCE for module in modules), key=lambda source: source.claim))


def find_source(name: str) -> DataSource:
    """The first source that means this name."""
    for source in all_sources():
        if source.means(name):
            return source
    raise _unknown(name)


def open_source(config: ConfigDict, *, stream: bool = False) -> Found | Encoded:
    """Open the training images that a config's `data` block names."""
    if not config.name:
        raise DataError(f"no data: give --config.data.name=, {_offers('')}")
    name = os.path.expanduser(config.name)
    source = find_source(name)
    if stream and not source.can_stream:
        raise DataError(f"{name} cannot be streamed; give --config.data.stream=False")
    try:
        return source.open(name, config)
    except UnknownName:
        raise _unknown(name) from None


def prepare(name: str, folder: str = "") -> str:
    """Download and convert what a name stands for, unless it is there; returns where it lies."""
    try:
        return find_source(name).prepare(name, folder)
    except UnknownName:
        raise _unknown(name) from None


def known_size(name: str) -> int | None:
    """The number of training images, if it is known without opening them."""
    return find_source(os.path.expanduser(name)).sizes.get(name)


def _unknown(name: str) -> DataError:
    return DataError(f"there is no data {name!r}: give {_offers(name)}")


def _offers(name: str) -> str:
    *most, last = (source.offer(name) for source in reversed(all_sources()))
    return f"{', '.join(most)} or {last}"
