"""Search methods by name; `base` says what a method is.

A method is one file here with one class, and one line in METHODS. Its hyper-parameters, if any,
are the part of a config that has its name: `config.search.darts`.
"""

import importlib

METHODS = {
    "ista": "ista.Ista",
    "darts": "darts.Darts",
    "darts_second_order": "darts.SecondOrder",
    "pc_darts": "pc_darts.PCDarts",
    "snas": "snas.Snas",
    "nasp": "nasp.Nasp",
    "pdarts": "pdarts.PDarts",
    "random": "random_search.RandomSearch",
}

# What of a config only ISTA-NAS reads: its hyper-parameters are older than `search.method`.
OF_ISTA = (
    "recovery",
    "explore",
    "search.b",
    "search.budget",
    "architecture.m",
    "architecture.lam",
    "architecture.sigma",
    "architecture.columns",
    "architecture.signed",
    "architecture.distinct",
    "architecture.implicit",
)
# What of a config a method does not read, since it has the like of its own.
NOT_OF = {"pdarts": ("search.cells", "search.epochs")}


def find_method(name: str) -> type:
    """The class of a method; its file is imported only now."""
    if name not in METHODS:
        raise ValueError(f"search.method is {name!r}, there are: {', '.join(METHODS)}")
    module, _, cls = METHODS[name].partition(".")
    return getattr(importlib.import_module(f"{__name__}.{module}"), cls)
