"""Faults without a measured effect are reported."""

import pytest

from faults.catalogue import KINDS
from faults.effects import (
    RULES,
    STORY_RULES,
    is_yet_to_show,
    lacking,
    lacking_of_story,
    logged_after,
)
from faults.plan import ROUND_TRIP, STORIES, TRUNCATION


@pytest.mark.parametrize("kind", KINDS)
def test_no_measurement_is_no_effect(kind: str) -> None:
    assert lacking(kind, {})


@pytest.mark.parametrize("kind", KINDS)
def test_the_effect_that_the_rules_require_counts(kind: str) -> None:
    assert lacking(kind, {rule.measure: rule.least for rule in RULES[kind]}) == []


@pytest.mark.parametrize(
    ("kind", "measures", "lacks"),
    [
        ("drop_packets", {"packets_lost": 500, "percent_lost": 1}, "percent_lost is 1"),
        ("drop_packets", {"packets_lost": 1, "percent_lost": 100}, "packets_lost is 1"),
        ("kill_all_etcd", {"store_losses_logged": 3, "all_ended": 0}, "all_ended is 0"),
        ("stop_leader", {"processes_ended": 1, "clean_ends": 0}, "clean_ends is 0"),
        (
            "stop_controller",
            {"processes_ended": 1, "other_active": 1, "clean_ends": 0},
            "clean_ends is 0",
        ),
    ],
)
def test_a_partial_effect_is_none(kind: str, measures: dict[str, float], lacks: str) -> None:
    [reported] = lacking(kind, measures)

    assert reported.startswith(lacks)


def test_a_cut_without_traffic_has_no_effect() -> None:
    [reported] = lacking("cut_follower", {"packets_lost": 0})

    assert reported.startswith("packets_lost is 0, at least 1 shows an effect")


def test_an_undetected_bit_flip_has_no_effect() -> None:
    assert lacking("flip_bit", {"processes_ended": 1, "damage_logged": 0})


def test_an_effect_that_needs_a_lasting_fault_is_still_pending() -> None:
    assert is_yet_to_show("kill_controller", {"other_active": 0})
    assert not is_yet_to_show("kill_controller", {"other_active": 1, "processes_ended": 0})
    assert not is_yet_to_show("kill_leader", {})


@pytest.mark.parametrize(("logged", "lacks"), [(0, 1), (1, 1), (2, 0)])
def test_each_isolation_of_a_truncation_story_needs_a_truncated_replica(
    logged: int, lacks: int
) -> None:
    assert len(lacking_of_story(TRUNCATION, logged)) == lacks


@pytest.mark.parametrize(
    ("logged_ms", "logged"), [([], 0), ([5], 0), ([12, 15], 1), ([12, 20], 2), ([31, 40], 1)]
)
def test_two_truncations_reported_after_one_fault_do_not_count_for_the_next(
    logged_ms: list[int], logged: int
) -> None:
    assert logged_after([10, 20], logged_ms) == logged


def test_required_effects_belong_to_existing_stories() -> None:
    stories = {story.name: story for story in STORIES}
    for name, rule in STORY_RULES.items():
        assert rule.after in stories[name].kinds
    assert lacking_of_story(ROUND_TRIP, 0) == []
