"""Patches that each plant one bug in the production rules.

A patch is a unified diff below lines `Rule: …` (which rule is broken), `Story: …` (what goes
wrong) and, where the model is to find it, `Model: …` (budgets of a scenario), or, where the bug
needs certain faults, `Faults: …` (their kinds) or `Stories: …` (their names in
`simulation.stories`): only seeds whose plan has one of them are run. With `Plan: …` only the stored
plan of that name is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DIRECTORY = Path(__file__).parent / "patches"
PRODUCTION = ("libs/", "services/")

_PATCHED_FILE = re.compile(r"^\+\+\+ b/(.+)$", re.MULTILINE)


class PatchError(Exception):
    """A patch that is not what this directory holds; the message says what would be right."""


class Mutant(NamedTuple):
    """`model`: the scenario in which the model looks for it; '': the simulation does. `faults`:
    only seeds with one of these kinds are run; `stories`: with one of these; empty: all.
    `plan`: instead of seeds this stored plan; empty: none."""

    name: str
    path: Path
    rule: str
    story: str
    model: str
    files: tuple[str, ...]
    faults: tuple[str, ...] = ()
    stories: tuple[str, ...] = ()
    plan: str = ""


def all_mutants(directory: Path = DIRECTORY) -> list[Mutant]:
    """In the order of their names. Raises `PatchError`."""
    return [read(path) for path in sorted(directory.glob("*.patch"))]


def read(path: Path) -> Mutant:
    text = path.read_text()
    head = text.partition("\n--- ")[0]
    said = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    for key in ("Rule", "Story"):
        if not said.get(key):
            raise PatchError(f"{path.name} has no line '{key}: …' above its diff; add one")
    files = tuple(_PATCHED_FILE.findall(text))
    wrong = [name for name in files if not name.startswith(PRODUCTION)]
    if wrong or not files:
        raise PatchError(
            f"{path.name} changes {', '.join(wrong) or 'nothing'}; a patch changes production "
            f"files alone, which are below {' and '.join(PRODUCTION)}"
        )
    return Mutant(
        path.stem,
        path,
        said["Rule"],
        said["Story"],
        said.get("Model", ""),
        files,
        tuple(said.get("Faults", "").split()),
        tuple(said.get("Stories", "").split()),
        said.get("Plan", ""),
    )
