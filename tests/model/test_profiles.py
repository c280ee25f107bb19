"""The scenarios of `make model` cover the needed combinations, and each removal has its control."""

from __future__ import annotations

import pytest

from model.profiles import FULL, QUICK
from model.scenarios import LATE, REMOVALS, Removal, Scenario, controls, of

SMALL = Scenario("small", 1, 1, 2, 1, of("fetch"), of("crash"))
LARGER = [
    SMALL._replace(faults=2),
    SMALL._replace(records=2),
    SMALL._replace(epochs=3),
    SMALL._replace(in_flight=2),
    SMALL._replace(late=of("fetch", "isr")),
    SMALL._replace(kinds=of("crash", "lag")),
]


@pytest.mark.parametrize("removal", REMOVALS, ids=lambda removal: removal.rule.name)
def test_where_a_rule_is_switched_off_the_rules_are_explored_too(removal: Removal) -> None:
    assert any(removal.scenario.lies_within(scenario) for scenario in FULL)


def test_one_scenario_has_records_epochs_late_messages_and_every_fault_of_one_term() -> None:
    faults = of("crash", "reboot", "lag", "lease", "stop", "damage")
    combined = Scenario("together", 1, 2, 3, 1, of("fetch", "isr"), faults)
    assert any(combined.lies_within(scenario) for scenario in FULL)


@pytest.mark.parametrize("late", LATE)
def test_the_smaller_bound_has_every_kind_of_late_message(late: str) -> None:
    assert any(late in scenario.late for scenario in QUICK)


@pytest.mark.parametrize("scenario", FULL, ids=lambda scenario: scenario.name)
def test_no_scenario_repeats_what_another_one_holds(scenario: Scenario) -> None:
    assert not [other.name for other in FULL if other != scenario and scenario.lies_within(other)]


@pytest.mark.parametrize("larger", LARGER)
def test_a_scenario_lies_within_one_that_has_more_of_anything(larger: Scenario) -> None:
    assert SMALL.lies_within(larger)
    assert not larger.lies_within(SMALL)


@pytest.mark.parametrize(
    "other", [SMALL._replace(synced=True), SMALL._replace(unclean=True)], ids=["synced", "unclean"]
)
def test_a_scenario_of_another_topic_holds_nothing_of_it(other: Scenario) -> None:
    assert not SMALL.lies_within(other)


def test_removals_that_no_scenario_holds_are_explored_with_their_rules() -> None:
    of_all = {control._replace(name="") for control in controls(())}
    assert of_all == {removal.scenario._replace(name="") for removal in REMOVALS}
    assert controls(FULL) == ()
