from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model import NO_LEADER, TopicPartition
from tidelog_controller.policies.leader_balance import (
    PartitionLeadership,
    hindrance,
    maintenance_successors,
    preferred_elections,
)

ALL = (1, 2, 3)


def p(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def elections(
    partitions: dict[TopicPartition, PartitionLeadership],
    running: tuple[int, ...] = ALL,
    maintenance: tuple[int, ...] = (),
    threshold_percent: int = 0,
    at_most: int = 1_000,
) -> list[TopicPartition]:
    return preferred_elections(partitions, running, maintenance, threshold_percent, at_most)


def ten(
    away: int, preferred: int = 1, topic: str = "t"
) -> dict[TopicPartition, PartitionLeadership]:
    """Ten partitions; this number of them is not led by the preferred replica."""
    others = tuple(b for b in ALL if b != preferred)
    return {
        p(n, topic): PartitionLeadership(
            (preferred, *others), others[0] if n < away else preferred, ALL
        )
        for n in range(10)
    }


@pytest.mark.rule("leadership-returns-above-threshold")
@pytest.mark.parametrize(("threshold_percent", "expected"), [(20, []), (19, [p(0), p(1)])])
def test_a_broker_regains_its_leaderships_above_the_threshold(
    threshold_percent: int, expected: list[TopicPartition]
) -> None:
    assert elections(ten(2), threshold_percent=threshold_percent) == expected


def test_the_threshold_applies_to_each_broker() -> None:
    partitions = ten(1, preferred=1, topic="a") | ten(3, preferred=2, topic="b")
    assert elections(partitions, threshold_percent=20) == [p(n, "b") for n in range(3)]


def test_the_broker_that_lacks_most_leaderships_comes_first_and_the_others_wait() -> None:
    partitions = ten(3, preferred=1, topic="a") | ten(5, preferred=2, topic="b")
    expected = [*(p(n, "b") for n in range(5)), p(0, "a")]
    assert elections(partitions, at_most=6) == expected


def test_a_partition_led_by_its_preferred_replica_is_left_alone() -> None:
    assert elections(ten(0)) == []


def test_without_partitions_nothing_is_elected() -> None:
    assert elections({}) == []


@pytest.mark.parametrize(
    ("state", "running", "maintenance", "reason"),
    [
        (PartitionLeadership(ALL, 2, ALL), (2, 3), (), "broker 1 is not running; start it"),
        (PartitionLeadership(ALL, 2, ALL), ALL, (1,), "broker 1 is in maintenance"),
        (PartitionLeadership(ALL, 2, (2, 3)), ALL, (), "on broker 1 is not in sync"),
        (PartitionLeadership(ALL, NO_LEADER, (1,)), ALL, (), "has no leader"),
    ],
)
def test_an_ineligible_preferred_replica_is_not_elected_and_the_reason_is_given(
    state: PartitionLeadership, running: tuple[int, ...], maintenance: tuple[int, ...], reason: str
) -> None:
    assert elections({p(0): state}, running, maintenance) == []
    assert reason in str(hindrance(state, running, maintenance))


def test_nothing_prevents_an_in_sync_preferred_replica_from_leading() -> None:
    assert hindrance(PartitionLeadership(ALL, 2, ALL), ALL, ()) is None


def test_nothing_prevents_the_current_leader_from_leading() -> None:
    assert hindrance(PartitionLeadership(ALL, 1, (1,)), (2,), (1,)) is None


def test_an_ineligible_preferred_replica_still_counts_as_lacking() -> None:
    """Otherwise a broker with half of its replicas out of sync would never regain the other
    leaderships.
    """
    partitions = ten(2)
    partitions[p(0)] = partitions[p(0)]._replace(isr=(2, 3))
    assert elections(partitions, threshold_percent=15) == [p(1)]


@given(
    st.dictionaries(
        st.builds(p, st.integers(0, 20), st.sampled_from("ab")),
        st.builds(
            lambda order, leader, isr: PartitionLeadership(tuple(order), order[leader], isr),
            st.permutations((1, 2, 3, 4)),
            st.integers(0, 3),
            st.sets(st.integers(1, 4)),
        ),
    ),
    st.sets(st.integers(1, 4)),
    st.sets(st.integers(1, 4)),
    st.integers(0, 100),
    st.integers(0, 10),
)
def test_elections_are_safe_bounded_and_independent_of_order(
    partitions: dict[TopicPartition, PartitionLeadership],
    running: set[int],
    maintenance: set[int],
    threshold_percent: int,
    at_most: int,
) -> None:
    chosen = preferred_elections(partitions, running, maintenance, threshold_percent, at_most)
    assert len(chosen) == len(set(chosen)) <= at_most
    for partition in chosen:
        preferred = partitions[partition].replicas[0]
        assert preferred in running - maintenance
        assert preferred in partitions[partition].isr
        assert preferred != partitions[partition].leader
    backwards = dict(reversed(partitions.items()))
    again = preferred_elections(backwards, running, maintenance, threshold_percent, at_most)
    assert again == chosen


@pytest.mark.rule("leadership-returns-above-threshold")
@pytest.mark.parametrize(
    ("state", "running", "maintenance", "successor"),
    [
        (PartitionLeadership(ALL, 1, ALL), ALL, (1,), 2),
        (PartitionLeadership(ALL, 1, (1, 3)), ALL, (1,), 3),
        (PartitionLeadership(ALL, 1, ALL), (1, 3), (1,), 3),
        (PartitionLeadership(ALL, 1, ALL), ALL, (1, 2), 3),
        (PartitionLeadership(ALL, 1, (1,)), ALL, (1,), None),
        (PartitionLeadership(ALL, 1, ALL), ALL, ALL, None),
    ],
)
def test_a_broker_in_maintenance_leads_only_where_no_other_can(
    state: PartitionLeadership,
    running: tuple[int, ...],
    maintenance: tuple[int, ...],
    successor: int | None,
) -> None:
    assert maintenance_successors({p(0): state}, running, maintenance) == {p(0): successor}


def test_maintenance_does_not_affect_partitions_led_by_others() -> None:
    assert maintenance_successors({p(0): PartitionLeadership(ALL, 2, ALL)}, ALL, (1,)) == {}
