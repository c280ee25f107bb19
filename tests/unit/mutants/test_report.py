"""Where the report goes."""

from __future__ import annotations

import json
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
        return Outcome(mutant, Verdict("an_invariant", 1), 0.1, {"libs/a.py: return 3": 2})

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


def test_the_report_says_how_often_each_changed_line_ran(directory: Path) -> None:
    one = all_mutants()[0].name
    main(["--no-baseline", "--only", one])
    (told,) = json.loads((directory / "mutants.partial.json").read_text())
    assert told["executed"] == {"libs/a.py: return 3": 2}
    assert told["times_executed"] == 2


def test_a_run_that_is_resumed_plants_what_was_not_found_yet(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    first, second, third = (mutant.name for mutant in all_mutants()[:3])
    judged: list[str] = []

    def judge(mutant: Mutant, _: int) -> Outcome:
        judged.append(mutant.name)
        found_by = "" if mutant.name == second and judged.count(second) == 1 else "an_invariant"
        return Outcome(mutant, Verdict(found_by, 1), 0.1, {})

    monkeypatch.setattr(mutants.__main__, "_judge", judge)
    monkeypatch.setattr(mutants.__main__, "checked_out_commit", lambda: f"after {len(judged)}")
    options = ["--no-baseline", "--jobs", "1", "--resume", "--only"]
    assert main([*options, first, second]) == 1
    assert main([*options, first, second, third]) == 0
    assert judged == [first, second, second, third]
    told = json.loads((directory / "mutants.partial.json").read_text())
    assert [(entry["name"], entry["commit"], entry["found_by"]) for entry in told] == [
        (first, "after 0", "an_invariant"),
        (second, "after 2", "an_invariant"),
        (third, "after 2", "an_invariant"),
    ]


@pytest.mark.parametrize(
    ("executed", "why"),
    [({}, "never reached"), ({"libs/a.py: return 3": 7}, "reached, not judged")],
)
def test_a_survivor_that_was_never_reached_is_told_from_one_that_was(
    executed: dict[str, int], why: str
) -> None:
    outcome = Outcome(all_mutants()[0], Verdict("", 5), 0.1, executed)
    assert f"SURVIVES: {why}" in outcome.told
