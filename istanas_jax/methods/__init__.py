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


def find_method(name: str) -> type:
    """The class of a method; its file is imported only now."""
    if name not in METHODS:
        raise ValueError(f"search.method is {name!r}, there are: {', '.join(METHODS)}")
    module, _, cls = METHODS[name].partition(".")
    return getattr(importlib.import_module(f"{__name__}.{module}"), cls)
