"""A fault without a measured effect is told."""

import pytest

from faults.catalogue import KINDS
from faults.effects import RULES, lacking


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_measured_is_no_effect(kind: str) -> None:
    assert lacking(kind, {})


@pytest.mark.parametrize("kind", KINDS)
def test_what_its_rules_ask_for_is_an_effect(kind: str) -> None:
    assert lacking(kind, {rule.measure: rule.least for rule in RULES[kind]}) == []


def test_each_of_several_kills_ends_a_life() -> None:
    assert lacking("kill_leader", {"lives_ended": 4}, times=5)
    assert lacking("kill_leader", {"lives_ended": 5}, times=5) == []


def test_a_cut_over_which_nothing_was_sent_has_none() -> None:
    [told] = lacking("cut_follower", {"packets_lost": 0})

    assert told.startswith("packets_lost is 0, at least 1 shows an effect")


def test_a_flipped_bit_that_nobody_found_has_none() -> None:
    assert lacking("flip_bit", {"lives_ended": 1, "damage_told": 0})
