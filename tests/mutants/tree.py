"""A copy of what a check needs, with one bug planted in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mutants.planted import Mutant, PatchError
from mutants.reach import DIRECTORY_VARIABLE, changed_lines, instrument, patched_files

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("libs", "services", "tests", "pyproject.toml")
IMPORTED_FROM = ("libs", "services/broker", "services/controller", "tests")
# Within the temporary tree: what the processes of a check have counted.
REACHED = "reached"


@contextmanager
def planted(mutant: Mutant) -> Iterator[Path]:
    """Raises `PatchError` where the patch does not apply any more."""
    with tempfile.TemporaryDirectory(prefix=f"mutant-{mutant.name}-") as name:
        tree = Path(name)
        for part in COPIED:
            copy(ROOT / part, tree / part)
        apply(mutant, tree)
        plant_counters(mutant, tree)
        yield tree


def copy(source: Path, target: Path) -> None:
    """Compiled code comes along: it is valid for every file that is not changed."""
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def apply(mutant: Mutant, tree: Path) -> None:
    result = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", str(mutant.path)],
        cwd=tree,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise PatchError(
            f"{mutant.path.name} does not apply any more: {result.stderr.strip()}; plant the "
            "same bug in the code as it is now, and make the patch anew"
        )


def plant_counters(mutant: Mutant, tree: Path) -> list[str]:
    """Returns the changed lines that have one, as "file:line"."""
    (tree / REACHED).mkdir(exist_ok=True)
    return [
        line
        for name in patched_files(mutant.path.read_text())
        for line in instrument(tree / name, name, changed(name, tree))
    ]


def changed(name: str, tree: Path) -> list[int]:
    return changed_lines((ROOT / name).read_text(), (tree / name).read_text())


def environment(tree: Path) -> dict[str, str]:
    """For a process that imports from this tree alone."""
    path = os.pathsep.join(str(tree / part) for part in IMPORTED_FROM)
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",
        DIRECTORY_VARIABLE: str(tree / REACHED),
    }
