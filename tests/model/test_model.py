"""The model's own parts, and its smaller bound over the production rules."""

from __future__ import annotations

import json

import pytest

from model import canonical, story
from model.__main__ import main, run_all
from model.explore import Exploration, Outcome
from model.profiles import QUICK
from model.rules import MIN_ISR, switched_off
from model.scenarios import REMOVALS, Removal, Scenario, of
from model.values import NEXT_INCARNATION, UNTIL_ADMITTED

MAX_STATES = 400_000
MAX_SECONDS = 60


def explore(scenario: Scenario, *, heals: bool = True) -> Outcome:
    exploration = Exploration(scenario, heals=heals)
    return exploration.run(max_states=MAX_STATES, max_seconds=MAX_SECONDS)


@pytest.mark.parametrize("scenario", QUICK, ids=lambda scenario: scenario.name)
def test_the_rules_hold_in_every_state_within_the_budgets(scenario: Scenario) -> None:
    outcome = explore(scenario)
    assert outcome.violation is None, "\n".join(story.lines(outcome.violation))
    assert outcome.complete


@pytest.mark.rule("logs-reconciled-before-batches")
@pytest.mark.rule("truncations-fenced-by-epoch")
@pytest.mark.rule("hw-advances-in-leader-epoch")
@pytest.mark.rule("joiner-at-hw-and-epoch-start")
@pytest.mark.parametrize("removal", REMOVALS, ids=lambda removal: removal.rule.name)
def test_a_rule_that_is_switched_off_is_missed(removal: Removal) -> None:
    with switched_off(removal.rule):
        assert explore(removal.scenario, heals=False).violation is not None


def test_a_story_names_what_each_step_changed_and_what_is_broken() -> None:
    with switched_off(MIN_ISR):
        violation = explore(Scenario("", 2, 1, 1, kinds=of("lag")), heals=False).violation
    assert violation is not None
    lines = story.lines(violation)
    assert lines[0] == "0. Three brokers run. The key: leader 1 in epoch 0, ISR {1, 2, 3}."
    assert "1. broker 1 appends a record: broker 1 has [a@0]." in lines
    assert lines[-1].endswith("committed is [a@0], and broker 3 has [].")


def test_a_state_that_cannot_heal_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """No replica ever joins an ISR."""
    monkeypatch.setattr("tidelog_broker.core.partition.isr.may_join", lambda *_, **__: False)
    violation = explore(Scenario("", 1, 0, 1, kinds=of("lag"))).violation
    assert violation is not None
    assert violation.invariant == "the cluster can heal to a writable one"


def test_an_exploration_says_when_it_was_not_exhaustive() -> None:
    outcome = Exploration(QUICK[0]).run(max_states=100, max_seconds=MAX_SECONDS)
    assert not outcome.complete


def test_equal_explorations_find_equal_states() -> None:
    scenario = Scenario("", 1, 1, 1)
    first, second = explore(scenario), explore(scenario)
    assert (first.states, first.transitions, first.depth) == (
        second.states,
        second.transitions,
        second.depth,
    )


def test_lives_are_numbered_in_their_order() -> None:
    table = canonical.renaming(1 << 0 | 1 << 2 | 1 << 5)
    assert (table[0], table[2], table[5]) == (0, 1, 2)


def test_a_life_that_nothing_names_is_as_good_as_the_next_one_that_is_named() -> None:
    table = canonical.renaming(1 << 2 | 1 << 5)
    assert (table[1], table[3], table[6]) == (1, 2, NEXT_INCARNATION)
    assert table[UNTIL_ADMITTED] == UNTIL_ADMITTED


def test_the_report_names_every_rule(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("model.__main__.QUICK", (Scenario("tiny", 0, 1, 1),))
    monkeypatch.setattr("model.__main__.REMOVALS", REMOVALS[:1])
    assert main(["--quick", "--json", "--processes", "1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rules_caught"] == [REMOVALS[0].rule.name]
    assert report["violations"] == []
    assert [s["verdict"] for s in report["scenarios"]] == ["holds"]


def test_what_no_time_is_left_for_is_not_exhausted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.__main__.REMOVALS", ())
    scenarios = Scenario("tiny", 1, 1, 1), Scenario("late", 0, 1, 1)
    first, second = run_all(scenarios, processes=1, max_seconds=MAX_SECONDS, max_seconds_in_all=0)
    assert first.as_it_should_be
    assert (second.scenario, second.verdict) == ("late", "NOT EXHAUSTED")
