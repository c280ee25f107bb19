"""Plans that revealed a bug, stored as lists of faults.

What a seed draws changes with the kinds of faults; a list does not. A file has lines that begin
with "#": `# Seed: 7`, which determines all but the faults (the network, the workload), and a
description. Then it has one fault a line, as a failure prints them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from simulation.faults import Fault, parse_fault

DIRECTORY = Path(__file__).parent / "regressions"
_SEED = "Seed:"


class StoredPlan(NamedTuple):
    """A stored plan. `seed` is None if the file names none."""

    name: str
    seed: int | None
    story: str
    faults: list[Fault]


def read_plan(path: Path) -> StoredPlan:
    """Parses a file. Raises OSError, or ValueError for a line that is no comment and no fault."""
    seed: int | None = None
    story: list[str] = []
    faults: list[Fault] = []
    for line in map(str.strip, path.read_text().splitlines()):
        comment = line.removeprefix("#").strip()
        if not line.startswith("#"):
            faults += [parse_fault(line)] if line else []
        elif comment.startswith(_SEED):
            seed = int(comment.removeprefix(_SEED))
        elif comment:
            story.append(comment)
    return StoredPlan(path.stem, seed, " ".join(story), faults)


def stored_plans() -> list[StoredPlan]:
    return [read_plan(path) for path in sorted(DIRECTORY.glob("*.txt"))]
