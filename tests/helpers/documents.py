"""The documents, and the commands that they tell readers to type."""

import itertools
import re
from pathlib import Path

from places import ROOT

STARTS = ("python -m istanas_jax", "bash launch/", "python launch/")


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands_in(text: str) -> list[str]:
    """Find commands in indented or fenced blocks and in inline code; in order, without repeats.

    Comments are dropped, and continued lines are joined.
    """
    lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    fences = itertools.accumulate(line.lstrip().startswith("```") for line in lines)
    found = []
    blocks = zip(lines, fences, strict=True)
    for is_code, block in itertools.groupby(blocks, lambda b: b[0].startswith("    ") or b[1] % 2):
        inside = [line.strip() for line, _ in block]
        found += (
            inside if is_code else re.findall(r"`([^`]+)`", " ".join(inside).replace("```", ""))
        )
    commands = [re.split(r"\s+#", command)[0].strip() for command in found]
    return list(dict.fromkeys(c for c in commands if c.startswith(STARTS)))
