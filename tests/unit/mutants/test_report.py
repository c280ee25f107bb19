"""Where the report goes."""

from __future__ import annotations

from pathlib import Path

import pytest

import mutants.__main__
from mutants.__main__ import Outcome, main
from mutants.checks import Verdict
from mutants.planted import Mutant, all_mutants


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where nothing is planted in truth, and everything is found."""

    def judge(mutant: Mutant, _: int) -> Outcome:
        return Outcome(mutant, Verdict("an_invariant", 1), 0.1)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mutants.__main__, "_judge", judge)
    return tmp_path / "out"


def test_some_mutants_do_not_take_the_place_of_what_all_have_shown(directory: Path) -> None:
    one = all_mutants()[0].name
    assert main(["--no-baseline", "--only", one]) == 0
    assert [path.name for path in directory.iterdir()] == ["mutants.partial.json"]


def test_all_mutants_are_the_proof_even_when_each_is_named(directory: Path) -> None:
    every = [mutant.name for mutant in all_mutants()]
    for options in ([], ["--only", *every]):
        assert main(["--no-baseline", *options]) == 0
        assert [path.name for path in directory.iterdir()] == ["mutants.json"]
