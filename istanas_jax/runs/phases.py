"""The phases of a run and their names, which rows, files and folders of checkpoints bear."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

# "retrain" is training from scratch, "train" goes on with the weights of a one-stage search.
NAMES = ("search", "retrain", "train")


class Phase(NamedTuple):
    """One search or training of a run.

    >>> Phase("search", 0, stage=2).title, Phase("search", 0, stage=2).file
    ('search 0 stage 2', 'search_0_stage_2.json')
    >>> Phase.parse("retrain 1")
    Phase(name='retrain', number=1, stage=None)
    """

    name: str  # one of NAMES
    number: int = 0  # which of several phases of this name
    stage: int | None = None  # number of the stage, from 1, if a search has several

    @classmethod
    def parse(cls, text: str) -> Phase:
        """The phase with this title or folder; a ValueError if there is none."""
        found = re.fullmatch(rf"({'|'.join(NAMES)})[ _](\d+)(?:[ _]stage[ _](\d+))?", text)
        if not found:
            raise ValueError(f"{text!r} is not the name of a phase")
        return cls(found[1], int(found[2]), int(found[3]) if found[3] else None)

    @property
    def title(self) -> str:
        """The name for people, used in rows of metrics and in checkpoints."""
        return f"{self.name} {self.number}" + (f" stage {self.stage}" if self.stage else "")

    @property
    def folder(self) -> str:
        """The folder of its checkpoints."""
        return self.title.replace(" ", "_")

    @property
    def file(self) -> str:
        """The file with its result, written when it has ended."""
        return f"{self.folder}.json"


def name_in(title: str) -> str:
    """The name in the title of a phase: "search" of "search 0 stage 1"."""
    return title.partition(" ")[0]


def part_of(name: str) -> str:
    """The part of the config that says what a phase of this name does."""
    return "search" if name == "search" else "train"


def without_stage(title: str) -> str:
    """The phase that a stage is a part of: "search 0" of "search 0 stage 1"."""
    return title.partition(" stage ")[0]


def phases_named(names: Iterable[str]) -> list[Phase]:
    """The phases among these names of folders, in the order in which a run goes through them."""
    found = []
    for name in names:
        try:
            found.append(Phase.parse(name))
        except ValueError:
            continue
    return sorted(found, key=lambda phase: (phase.name != "search", phase.number, phase.stage or 0))
