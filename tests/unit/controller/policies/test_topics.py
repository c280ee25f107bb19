from __future__ import annotations

import pytest

from tidelog.admin_messages import ConfigChange
from tidelog.errors import ErrorCode, TidelogError
from tidelog.request_bounds import check_topic_name
from tidelog_controller.policies.topics import (
    beginning_beyond,
    check_config,
    check_config_change,
    check_partitions,
    check_replication_factor,
)
from tidelog_controller.requests.topic_config_admin import config_changes
from tidelog_runtime.metadata.schema import TopicEntry


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 200, "..."])
def test_good_names_pass(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is empty"),
        ("x" * 201, "201 characters"),
        (".", "would be a path"),
        ("..", "would be a path"),
        ("a/b", "contains '/'"),
        ("tab\t", r"contains '\\t'"),
        ("é", "contains 'é'"),
        ("a\n", r"contains '\\n'"),
    ],
)
def test_bad_names_are_rejected_with_the_reason(name: str, problem: str) -> None:
    with pytest.raises(TidelogError, match=problem) as rejection:
        check_topic_name(name)
    assert rejection.value.code is ErrorCode.INVALID_TOPIC_NAME


@pytest.mark.parametrize("partitions", [-1, 0, 100_001])
def test_partition_counts_out_of_range_are_rejected(partitions: int) -> None:
    with pytest.raises(TidelogError, match="1 to 100000") as rejection:
        check_partitions(partitions)
    assert rejection.value.code is ErrorCode.INVALID_PARTITION_COUNT


@pytest.mark.parametrize("factor", [0, 4])
def test_a_factor_above_the_running_brokers_is_rejected_with_the_numbers(factor: int) -> None:
    with pytest.raises(TidelogError, match=f"factor {factor}.*3 brokers.*1 to 3") as rejection:
        check_replication_factor(factor, 3)
    assert rejection.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_without_brokers_the_rejection_says_to_start_one() -> None:
    with pytest.raises(TidelogError, match="start a broker first"):
        check_replication_factor(1, 0)


def test_running_brokers_that_were_removed_are_named() -> None:
    said = r"2 brokers take new replicas, since \[3\] were removed; ask for 1 to 2, add \[3\] again"
    with pytest.raises(TidelogError, match=said):
        check_replication_factor(3, 2, [3])
    with pytest.raises(TidelogError, match=r"\[3\] were removed; add \[3\] again, or start more"):
        check_replication_factor(1, 0, [3])


def test_an_unknown_config_key_is_rejected() -> None:
    with pytest.raises(TidelogError, match="did you mean retention_ms") as rejection:
        check_config({"retention_mss": "5"}, 1)
    assert rejection.value.code is ErrorCode.INVALID_CONFIG


def test_min_isr_above_the_factor_is_rejected() -> None:
    with pytest.raises(TidelogError, match="at most 2") as rejection:
        check_config({"min_insync_replicas": "3"}, 2)
    assert rejection.value.code is ErrorCode.INVALID_CONFIG


def test_added_partitions_begin_beyond_the_newest_epoch_of_all_removed_ones() -> None:
    once = beginning_beyond(TopicEntry("i", 2, 3), [4, 7, 5])
    assert once.first_leader_epoch == 8
    assert beginning_beyond(once, [9]).first_leader_epoch == 10


def test_added_partitions_begin_at_the_recorded_epoch_or_later() -> None:
    entry = TopicEntry("i", 2, 3, first_leader_epoch=8)
    assert beginning_beyond(entry, [7]) == entry
    assert beginning_beyond(entry, []) == entry


def test_an_out_of_range_number_stored_by_an_earlier_release_can_be_changed() -> None:
    previous = {"retention_ms": "1" + 30 * "0"}
    check_config_change(previous, {"retention_ms": "5"})
    (change,) = config_changes(previous, {"retention_ms": "5"})
    assert change == ConfigChange("retention_ms", str(2**63 - 1), "5")
