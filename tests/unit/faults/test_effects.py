"""A fault without a measured effect is told."""

import pytest

from faults.catalogue import KINDS
from faults.effects import RULES, STORY_RULES, lacking, lacking_of_story
from faults.plan import STORIES


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


def test_a_truncation_in_which_no_replica_cut_anything_has_none() -> None:
    assert lacking_of_story("truncation", 0) == [
        "truncation was told 0 times, at least 1 shows an effect (a replica cut off what its new "
        "leader has not)"
    ]
    assert lacking_of_story("truncation", 1) == []


def test_what_a_story_is_to_bring_about_is_asked_of_stories_that_there_are() -> None:
    assert STORY_RULES.keys() <= {story.name for story in STORIES}
    assert lacking_of_story("round_trip", 0) == []
