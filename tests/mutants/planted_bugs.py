"""The planted bugs: each file of `bugs/` breaks one production rule. README.md describes them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mutants.rewrite import Change, PatchError, changes_in

DIRECTORY = Path(__file__).parent / "bugs"
PRODUCTION = ("libs/", "services/")


class Mutant(NamedTuple):
    """`model`: the scenario in which the model looks for it; '': the simulation does. `faults`:
    only seeds with one of these kinds are run; `stories`: with one of these; empty: all.
    `plan`: instead of seeds this stored plan; empty: none."""

    name: str
    rule: str
    story: str
    model: str
    changes: tuple[Change, ...]
    faults: tuple[str, ...] = ()
    stories: tuple[str, ...] = ()
    plan: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(change.file for change in self.changes))


def all_mutants(directory: Path = DIRECTORY) -> list[Mutant]:
    """In the order of their names. Raises `PatchError`."""
    return [read(path) for path in sorted(directory.glob("*.txt"))]


def read(path: Path) -> Mutant:
    text = path.read_text()
    head = text.partition("\nIn: ")[0]
    fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    for key in ("Rule", "Story"):
        if not fields.get(key):
            raise PatchError(f"{path.name} has no line '{key}: …' above its changes; add one")
    changes = tuple(changes_in(text))
    if len(changes) != text.count("\nIn: "):
        raise PatchError(
            f"{path.name}: write each change as 'In: file symbol', 'Replace:', indented "
            "statements, 'By:', indented statements"
        )
    wrong = [change.file for change in changes if not change.file.startswith(PRODUCTION)]
    if wrong or not changes:
        raise PatchError(
            f"{path.name} changes {', '.join(wrong) or 'nothing'}; a planted bug changes files of "
            f"production alone, which are below {' and '.join(PRODUCTION)}"
        )
    return Mutant(
        path.stem,
        fields["Rule"],
        fields["Story"],
        fields.get("Model", ""),
        changes,
        tuple(fields.get("Faults", "").split()),
        tuple(fields.get("Stories", "").split()),
        fields.get("Plan", ""),
    )
