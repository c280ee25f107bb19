"""A copy of what a check needs, or of the changed part of it, with one bug planted in it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mutants.planted_bugs import Mutant
from mutants.reach import DIRECTORY_VARIABLE, changed_lines, instrument
from mutants.rewrite import PatchError, normalized, rewritten

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("libs", "services", "tests", "pyproject.toml")
IMPORTED_FROM = ("libs", "services/broker", "services/controller", "tests")
# Within the temporary tree: what the processes of a check have counted.
REACHED = "reached"


@contextmanager
def planted_tree(mutant: Mutant, parts: Sequence[str] = COPIED) -> Iterator[Path]:
    """Yields a copy of the code with the bug.

    - `parts`: what is copied; all else is used where it is, and must not change meanwhile

    Raises `PatchError` if the bug does not fit the code."""
    with tempfile.TemporaryDirectory(prefix=f"mutant-{mutant.name}-") as name:
        tree = Path(name)
        for part in parts:
            copy(ROOT / part, tree / part)
        apply(mutant, tree)
        plant_counters(mutant, tree)
        yield tree


def changed_parts(mutant: Mutant) -> list[str]:
    """Returns the parts that the bug changes."""
    return [part for part in IMPORTED_FROM if any(f.startswith(f"{part}/") for f in mutant.files)]


def found_in(tree: Path, part: str) -> Path:
    """Returns the part in the tree if it was copied, else the original."""
    return tree / part if (tree / part).exists() else ROOT / part


def copy(source: Path, target: Path) -> None:
    """Compiled code comes along: it is valid for every file that is not changed."""
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def apply(mutant: Mutant, tree: Path) -> None:
    for name in mutant.files:
        path = tree / name
        changes = [change for change in mutant.changes if change.file == name]
        try:
            path.write_text(rewritten(path.read_text(), changes))
        except PatchError as error:
            raise PatchError(f"{mutant.name}: {error}") from None


def plant_counters(mutant: Mutant, tree: Path) -> list[str]:
    """Returns the changed lines that have one, as "file: code"."""
    (tree / REACHED).mkdir(exist_ok=True)
    return [
        line for name in mutant.files for line in instrument(tree / name, name, changed(name, tree))
    ]


def changed(name: str, tree: Path) -> list[int]:
    return changed_lines(normalized((ROOT / name).read_text()), (tree / name).read_text())


def environment(tree: Path) -> dict[str, str]:
    """For a process that imports from this tree, and from the original what was not copied."""
    path = os.pathsep.join(str(found_in(tree, part)) for part in IMPORTED_FROM)
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",
        DIRECTORY_VARIABLE: str(tree / REACHED),
    }
