"""A check imports from the copy what a bug changes, and the rest from the original."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mutants.planted_bugs import Mutant, all_mutants
from mutants.tree import COPIED, IMPORTED_FROM, ROOT, changed_parts, environment, found_in

MUTANTS = all_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_all_that_a_bug_changes_is_copied(mutant: Mutant) -> None:
    parts = changed_parts(mutant)
    assert all(any(f.startswith(f"{part}/") for part in parts) for f in mutant.files)


def test_what_was_not_copied_is_the_original(tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    assert found_in(tmp_path, "libs") == tmp_path / "libs"
    assert found_in(tmp_path, "tests") == ROOT / "tests"
    path = environment(tmp_path)["PYTHONPATH"].split(os.pathsep)
    assert path == [str((tmp_path if p == "libs" else ROOT) / p) for p in IMPORTED_FROM]


def test_a_whole_copy_imports_nothing_of_the_original(tmp_path: Path) -> None:
    for part in (*COPIED, *IMPORTED_FROM):
        (tmp_path / part).mkdir(parents=True, exist_ok=True)
    path = environment(tmp_path)["PYTHONPATH"].split(os.pathsep)
    assert path == [str(tmp_path / part) for part in IMPORTED_FROM]
