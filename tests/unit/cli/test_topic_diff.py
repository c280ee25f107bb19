"""Differences between declared topics and those of a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.admin_messages import ConfigEntry, PartitionDetails, PartitionMove, TopicDetails
from tidelog.cli.applying.carrying_out import factor_groups
from tidelog.cli.applying.declarations import DeclaredTopic
from tidelog.cli.applying.topic_diff import (
    Difference,
    TopicChange,
    confirmed_config,
    plan_digest,
    topic_changes,
)
from tidelog.cli.applying.topic_requests import config_steps, fewest_replicas
from tidelog_runtime.topic_config import TopicConfig

DEFAULTS = TopicConfig().as_text()
# A value of each key that is not its default.
OTHERS = {
    "min_insync_replicas": "3",
    "max_batch_bytes": "2097152",
    "max_batch_records": "20000",
    "segment_bytes": "1048576",
    "segment_ms": "60000",
    "retention_ms": "1000",
    "retention_bytes": "1073741824",
    "timestamp_type": "append",
    "timestamp_max_ahead_ms": "-1",
    "durability": "synced",
    "recovery": "manual",
    "unclean_leader_election": "true",
}


def config_entries(**is_set: str) -> tuple[ConfigEntry, ...]:
    return tuple(
        ConfigEntry(key, is_set.get(key, default), key in is_set, default, "")
        for key, default in sorted(DEFAULTS.items())
    )


def partition(number: int, *replicas: int, target: tuple[int, ...] = ()) -> PartitionDetails:
    move = PartitionMove("grow", replicas, target) if target else None
    return PartitionDetails(number, 1, 0, replicas, replicas, (), 2, 7, move, -1)


def topic(name: str = "sea", partitions: int = 2, factor: int = 3, **config: str) -> TopicDetails:
    replicas = tuple(range(1, factor + 1))
    return TopicDetails(
        name,
        f"id-{name}",
        partitions,
        factor,
        config_entries(**config),
        7,
        deleting=False,
        partitions_being_removed=0,
        internal=False,
        partitions=tuple(partition(number, *replicas) for number in range(partitions)),
    )


def configured(config: dict[str, str]) -> TopicDetails:
    return replace(topic(), config=config_entries(**config))


def differences(declared: DeclaredTopic, found: TopicDetails) -> list[tuple[str, str, str]]:
    changes = topic_changes([declared], [found])
    return [(d.field, d.before, d.after) for change in changes for d in change.differences]


def test_a_topic_as_declared_has_no_difference() -> None:
    declared = DeclaredTopic("sea", 2, 3, {"segment_ms": "5"})
    assert topic_changes([declared], [topic(segment_ms="5")]) == []


def test_every_key_has_another_value_here() -> None:
    assert OTHERS.keys() == DEFAULTS.keys()
    assert all(OTHERS[key] != DEFAULTS[key] for key in OTHERS)


@pytest.mark.parametrize("key", OTHERS)
def test_drift_of_a_value_is_found(key: str) -> None:
    """Drift of each of the twelve keys: another value, one that is no longer set, and one that is
    set by hand."""
    value, default = OTHERS[key], DEFAULTS[key]
    declared = DeclaredTopic("sea", 2, 3, {key: value})
    reset = f"default {default}".rstrip()
    assert differences(declared, configured({key: "17"})) == [(key, "17", value)]
    assert differences(declared, topic()) == [(key, reset, value)]
    assert differences(DeclaredTopic("sea", config={}), configured({key: value})) == [
        (key, value, reset)
    ]


def test_drift_of_every_field_is_found_at_once() -> None:
    declared = DeclaredTopic("sea", 2, 3, OTHERS)
    found = differences(declared, topic(partitions=4, factor=2))
    assert {field for field, *_ in found} == {*OTHERS, "partitions", "replication_factor"}


@pytest.mark.parametrize("before", [1, 4])
def test_another_number_of_partitions_is_a_difference(before: int) -> None:
    (change,) = topic_changes([DeclaredTopic("sea", 2)], [topic(partitions=before)])
    assert change.differences == (Difference("partitions", str(before), "2"),)
    assert change.shrinks is (before == 4)


def test_a_removal_that_is_not_complete_is_a_difference() -> None:
    found = replace(topic(), partitions_being_removed=3)
    assert differences(DeclaredTopic("sea", 2), found) == [("partitions", "5", "2")]


def test_partitions_without_replicas_are_a_difference() -> None:
    found = replace(topic(), partitions=(partition(0, 1, 2, 3), partition(1)))
    assert differences(DeclaredTopic("sea", 2, 3), found) == [("partitions", "1", "2")]


def test_a_partition_with_another_number_of_replicas_is_a_difference() -> None:
    found = replace(topic(), partitions=(partition(0, 1, 2, 3), partition(1, 1, 2)))
    assert differences(DeclaredTopic("sea", 2, 3), found) == [("replication_factor", "2,3", "3")]


def test_a_partition_that_moves_counts_with_its_target() -> None:
    moving = replace(topic(partitions=1), partitions=(partition(0, 1, 2, target=(1, 2, 3)),))
    assert differences(DeclaredTopic("sea", 1, 3), moving) == []


def test_partitions_that_an_operation_has_yet_to_move_are_no_difference() -> None:
    waiting = replace(topic(partitions=1), partitions=(partition(0, 1, 2),))
    declared = [DeclaredTopic("sea", 1, 3)]
    assert topic_changes(declared, [waiting], moving={"sea"}) == []
    assert len(topic_changes(declared, [waiting])) == 1


def test_a_missing_topic_is_created() -> None:
    (change,) = topic_changes([DeclaredTopic("sea", 2, None, {"segment_ms": "5"})], [])
    assert (change.action, change.topic_id, change.revision) == ("create", "", 0)
    assert [d.field for d in change.differences] == ["topic", "partitions", "segment_ms"]


def test_topics_that_are_not_declared_are_deleted_only_by_prune_and_last() -> None:
    there = [topic("bay"), topic("__state_changes"), replace(topic("old"), deleting=True)]
    there[1] = replace(there[1], internal=True)
    declared = [DeclaredTopic("sea", 1)]
    assert [c.topic for c in topic_changes(declared, there)] == ["sea"]
    pruned = topic_changes(declared, there, prune=True)
    assert [(c.action, c.topic) for c in pruned] == [("create", "sea"), ("delete", "bay")]
    assert (pruned[1].topic_id, pruned[1].revision) == ("id-bay", 7)


def test_only_differences_that_the_controller_confirms_remain() -> None:
    declared = DeclaredTopic("sea", config={"retention_ms": "1_000", "recovery": "balanced"})
    found = topic(retention_ms="1000", segment_ms="60000", max_batch_bytes="2048")
    (change,) = topic_changes([declared], [found])
    altered = {"segment_ms": ("60000", "604800000")}
    assert [(d.field, d.after) for d in confirmed_config(change, altered).differences] == [
        # Reset to its default although the value is the same, or so it may be.
        ("max_batch_bytes", "default 1048576"),
        # Set to the present default: the default may change.
        ("recovery", "balanced"),
        ("segment_ms", "604800000"),
    ]


def change_of(**config: str) -> TopicChange:
    found = tuple(Difference(key, "", value) for key, value in config.items())
    return TopicChange("change", "sea", found)


@pytest.mark.parametrize(("factor_now", "is_late"), [(1, True), (2, False), (3, False)])
def test_a_min_isr_above_the_present_factor_waits_for_it(factor_now: int, is_late: bool) -> None:
    change = change_of(min_insync_replicas="2", segment_ms="5")
    early, late = config_steps(change, factor_now)
    assert early is not None
    assert [d.field for d in early.differences][-1] == "segment_ms"
    assert (late is not None) is is_late


def test_the_fewest_replicas_are_those_before_a_move() -> None:
    """The controller rejects a min ISR above them, although the topic has its new factor."""
    moving = replace(topic(), partitions=(partition(0, 1, target=(1, 2, 3)), partition(1, 1, 2)))
    assert fewest_replicas(moving) == 1
    assert fewest_replicas(replace(topic(), partitions=(partition(0, 1, 2),))) == 2
    assert fewest_replicas(replace(topic(), partitions=(partition(0),))) == 3


def test_the_digest_is_of_everything_that_changes() -> None:
    base = topic_changes([DeclaredTopic("sea", 4, 3)], [topic()])
    others = [
        topic_changes([DeclaredTopic("sea", 5, 3)], [topic()]),
        topic_changes([DeclaredTopic("sea", 4, 2)], [topic()]),
        topic_changes([DeclaredTopic("sea", 4, 3)], [topic(partitions=3)]),
        topic_changes([DeclaredTopic("sea", 4, 3)], [replace(topic(), topic_id="other")]),
        topic_changes([DeclaredTopic("bay", 4, 3)], [topic("bay")]),
        [],
    ]
    assert plan_digest(base) == plan_digest(
        topic_changes([DeclaredTopic("sea", 4, 3)], [replace(topic(), revision=99)])
    )
    assert len({plan_digest(changes) for changes in [base, *others]}) == 7


def test_topics_with_the_same_factor_share_an_operation_up_to_a_bound() -> None:
    factor = (Difference("replication_factor", "1", "3"),)
    changes = [TopicChange("change", f"t{number:02}", factor) for number in range(51)]
    changes.append(TopicChange("change", "sea", (Difference("replication_factor", "3", "2"),)))
    groups = list(factor_groups(changes))
    assert [(len(topics), factor) for topics, factor in groups] == [(1, 2), (50, 3), (1, 3)]
