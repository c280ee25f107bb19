"""Where the mutants report is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mutants.__main__
from mutants.__main__ import Outcome, main
from mutants.checks import Verdict
from mutants.planted_bugs import Mutant, all_mutants


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A working directory in which nothing is really planted and everything counts as found."""

    def judge(mutant: Mutant, _: int) -> Outcome:
        return Outcome(mutant, Verdict("an_invariant", 1), 0.1, {"libs/a.py: return 3": 2})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mutants.__main__, "_judge", judge)
    return tmp_path / "out"


def test_a_partial_run_does_not_replace_the_report_on_all_mutants(directory: Path) -> None:
    one = all_mutants()[0].name
    assert main(["--no-baseline", "--only", one]) == 0
    assert [path.name for path in directory.iterdir()] == ["mutants.partial.json"]


def test_naming_all_mutants_yields_the_full_report(directory: Path) -> None:
    every = [mutant.name for mutant in all_mutants()]
    for options in ([], ["--only", *every]):
        assert main(["--no-baseline", *options]) == 0
        assert [path.name for path in directory.iterdir()] == ["mutants.json"]


def test_the_report_has_the_execution_count_of_each_changed_line(directory: Path) -> None:
    one = all_mutants()[0].name
    main(["--no-baseline", "--only", one])
    (document,) = json.loads((directory / "mutants.partial.json").read_text())
    assert document["executed"] == {"libs/a.py: return 3": 2}
    assert document["times_executed"] == 2


def test_a_resumed_run_plants_the_bugs_not_yet_found(
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
    document = json.loads((directory / "mutants.partial.json").read_text())
    assert [(entry["name"], entry["commit"], entry["found_by"]) for entry in document] == [
        (first, "after 0", "an_invariant"),
        (second, "after 2", "an_invariant"),
        (third, "after 2", "an_invariant"),
    ]


@pytest.mark.parametrize(
    ("executed", "why"),
    [({}, "never reached"), ({"libs/a.py: return 3": 7}, "reached, not judged")],
)
def test_an_unreached_survivor_is_distinguished_from_a_reached_one(
    executed: dict[str, int], why: str
) -> None:
    outcome = Outcome(all_mutants()[0], Verdict("", 5), 0.1, executed)
    assert f"SURVIVES: {why}" in outcome.line
