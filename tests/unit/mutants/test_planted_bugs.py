"""The planted bugs still apply to the code, and each names the rule that it breaks. `make
mutants` checks whether they are found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mutants.explore import scenario
from mutants.planted_bugs import Mutant, all_mutants, read
from mutants.rewrite import PatchError
from mutants.tree import ROOT, apply, plant_counters
from simulation.faults import KINDS
from simulation.stored_plans import stored_plans
from simulation.stories import STORY_NAMES

MUTANTS = all_mutants()
MIN_MUTANTS = 25


def test_there_are_enough_planted_bugs() -> None:
    assert len(MUTANTS) >= MIN_MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_applies_to_the_present_code_and_yields_valid_python(
    mutant: Mutant, tmp_path: Path
) -> None:
    for name in mutant.files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    apply(mutant, tmp_path)
    for name in mutant.files:
        changed = (tmp_path / name).read_text()
        compile(changed, name, "exec")
        assert changed != (ROOT / name).read_text()
    assert plant_counters(mutant, tmp_path)
    for name in mutant.files:
        compile((tmp_path / name).read_text(), name, "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_names_its_rule_and_an_existing_scenario(mutant: Mutant) -> None:
    assert len(mutant.rule) > 20
    assert mutant.story.endswith(".")
    scenario(mutant.model.split() or ["faults=1", "records=1", "epochs=1"])


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_names_existing_faults_stories_and_plans(mutant: Mutant) -> None:
    assert set(mutant.faults) <= set(KINDS)
    assert set(mutant.stories) <= set(STORY_NAMES)
    assert mutant.plan in {"", *(plan.name for plan in stored_plans())}
    assert not (mutant.model and (mutant.faults or mutant.stories or mutant.plan))


def test_two_planted_bugs_never_break_a_rule_in_the_same_way() -> None:
    changes = [mutant.changes for mutant in MUTANTS]
    assert len(set(changes)) == len(changes)


HEAD = "Rule: a rule\nStory: It breaks.\n"
CHANGE = "In: libs/x.py f\nReplace:\n    return a\nBy:\n    return b\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"Story: It breaks.\n\n{CHANGE}", "no line 'Rule"),
        (f"{HEAD}\n{CHANGE.replace('libs', 'tests')}", "changes tests/x"),
        (HEAD, "changes nothing"),
        (f"{HEAD}\nIn: libs/x.py f\nReplace:\n    a\n", "indented"),
    ],
)
def test_a_malformed_planted_bug_is_rejected(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PatchError, match=said):
        read(write(tmp_path / "a.txt", text))


def test_a_planted_bug_that_does_not_apply_is_rejected(tmp_path: Path) -> None:
    mutant = read(write(tmp_path / "a.txt", f"{HEAD}\n{CHANGE}"))
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "x.py").write_text("def f(a):\n    return a + 1\n")
    with pytest.raises(
        PatchError, match=r"a: f in libs/x\.py has the statements to replace 0 times"
    ):
        apply(mutant, tmp_path)


def test_an_impossible_scenario_is_rejected() -> None:
    with pytest.raises(ValueError, match="nothing that a scenario has"):
        scenario(["kinds=flood"])


def test_a_scenario_may_have_a_synced_topic_or_one_with_unclean_elections() -> None:
    assert scenario(["faults=1", "records=1", "epochs=2", "synced"]).synced
    assert scenario(["faults=1", "records=1", "epochs=2", "unclean"]).unclean
