from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_controller.policies.placement import place, start_of

COUNTS = st.integers(1, 12)
STARTS = st.integers(0, 2**32 - 1)
PARTITIONS = st.integers(1, 200)


def placed(partitions: int, factor: int, brokers: int, start: int) -> list[tuple[int, ...]]:
    ids = [10 + b for b in range(brokers)]
    return [place(p, factor, ids, start) for p in range(partitions)]


@given(PARTITIONS, COUNTS, COUNTS, STARTS)
def test_the_replicas_of_a_partition_are_distinct(
    partitions: int, factor: int, brokers: int, start: int
) -> None:
    factor = min(factor, brokers)
    assert all(len(set(r)) == factor for r in placed(partitions, factor, brokers, start))


@given(PARTITIONS, COUNTS, STARTS)
def test_leaders_are_balanced_within_one(partitions: int, brokers: int, start: int) -> None:
    counts = Counter(replicas[0] for replicas in placed(partitions, 1, brokers, start))
    assert max(counts.values()) - min(counts[10 + b] for b in range(brokers)) <= 1


@given(PARTITIONS, COUNTS, COUNTS, STARTS)
def test_replicas_are_equal_where_partitions_go_round_exactly(
    rounds: int, factor: int, brokers: int, start: int
) -> None:
    factor = min(factor, brokers)
    counts = Counter(b for r in placed(rounds * brokers, factor, brokers, start) for b in r)
    assert set(counts.values()) == {rounds * factor}


@given(PARTITIONS, st.integers(2, 12), STARTS)
def test_a_dead_brokers_leaders_spread_over_all_survivors(
    partitions: int, brokers: int, start: int
) -> None:
    replicas = placed(partitions, 2, brokers, start)
    heirs = Counter(follower for leader, follower in replicas if leader == 10)
    counts = [heirs[10 + b] for b in range(1, brokers)]
    assert max(counts) - min(counts) <= 1


def test_topics_do_not_all_start_at_the_same_broker() -> None:
    first = {place(0, 1, range(5), start_of(f"topic-{n}"))[0] for n in range(50)}
    assert first == set(range(5))


@pytest.mark.parametrize("factor", [0, 4])
def test_more_replicas_than_brokers_are_refused_with_the_numbers(factor: int) -> None:
    with pytest.raises(ValueError, match="between 1 and 3"):
        place(0, factor, [1, 2, 3], 0)
