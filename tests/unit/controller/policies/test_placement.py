from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_controller.policies.placement import place, start_of
from tidelog_controller.policies.racks import RackedBroker
from tidelog_controller.policies.uneven_racks import rack_shares

# The first placement may be slow on a busy machine.

COUNTS = st.integers(1, 12)
STARTS = st.integers(0, 2**32 - 1)
PARTITIONS = st.integers(1, 200)
# Brokers by rack.
RACKS = st.lists(st.integers(1, 5), min_size=1, max_size=5)
UNEVEN_RACKS = RACKS.filter(lambda sizes: len(set(sizes)) > 1)


def without_racks(brokers: int) -> list[RackedBroker]:
    return [RackedBroker(10 + b) for b in range(brokers)]


def in_racks(sizes: list[int]) -> list[RackedBroker]:
    racks = [f"rack {rack}" for rack, size in enumerate(sizes) for _ in range(size)]
    return [RackedBroker(10 + b, rack) for b, rack in enumerate(racks)]


def placed(
    partitions: int, factor: int, brokers: list[RackedBroker], start: int
) -> list[tuple[int, ...]]:
    return [place(p, factor, brokers, start) for p in range(partitions)]


@pytest.mark.rule("placement-keeps-replicas-apart")
@given(PARTITIONS, COUNTS, RACKS, STARTS)
def test_the_replicas_of_a_partition_are_distinct(
    partitions: int, factor: int, sizes: list[int], start: int
) -> None:
    factor = min(factor, sum(sizes))
    replicas = placed(partitions, factor, in_racks(sizes), start)
    assert all(len(set(r)) == len(r) == factor for r in replicas)


@pytest.mark.rule("placement-uses-racks")
@given(PARTITIONS, COUNTS, RACKS, STARTS)
def test_no_rack_holds_two_more_of_a_partition_than_another_that_has_a_free_broker(
    partitions: int, factor: int, sizes: list[int], start: int
) -> None:
    brokers = in_racks(sizes)
    rack_of = {b.broker_id: b.rack for b in brokers}
    for replicas in placed(partitions, min(factor, len(brokers)), brokers, start):
        used = Counter(rack_of[b] for b in replicas)
        free = [b.rack for b in brokers if b.broker_id not in replicas]
        assert all(max(used.values()) <= used[rack] + 1 for rack in free)


@pytest.mark.rule("placement-spreads-leaders")
@given(PARTITIONS, COUNTS, RACKS, STARTS)
def test_leaders_are_balanced_within_one(
    partitions: int, factor: int, sizes: list[int], start: int
) -> None:
    brokers = in_racks(sizes)
    replicas = placed(partitions, min(factor, len(brokers)), brokers, start)
    counts = Counter(r[0] for r in replicas)
    assert max(counts.values()) - min(counts[b.broker_id] for b in brokers) <= 1


@given(PARTITIONS, COUNTS, st.integers(1, 4), st.integers(1, 5), STARTS)
def test_in_racks_of_equal_size_load_is_equal_after_whole_rounds_of_partitions(
    rounds: int, factor: int, racks: int, size: int, start: int
) -> None:
    brokers = in_racks([size] * racks)
    factor = min(factor, len(brokers))
    replicas = placed(rounds * len(brokers), factor, brokers, start)
    assert set(Counter(b for r in replicas for b in r).values()) == {rounds * factor}


@given(st.integers(1, 60), COUNTS, UNEVEN_RACKS, STARTS)
def test_in_uneven_racks_each_broker_deviates_from_its_share_by_less_than_three(
    partitions: int, factor: int, sizes: list[int], start: int
) -> None:
    brokers = in_racks(sizes)
    factor = min(factor, len(brokers))
    counts = Counter(b for r in placed(partitions, factor, brokers, start) for b in r)
    shares = rack_shares(sizes, factor)
    for rack, (size, share) in enumerate(zip(sizes, shares, strict=True)):
        for broker in [b for b in brokers if b.rack == f"rack {rack}"]:
            assert abs(counts[broker.broker_id] - share * partitions / size) < 3


@pytest.mark.parametrize(
    ("sizes", "factor", "shares"),
    [
        # All brokers hold the same number.
        ([2, 1, 1], 2, [1, Fraction(1, 2), Fraction(1, 2)]),
        ([3, 2, 3], 2, [Fraction(3, 4), Fraction(1, 2), Fraction(3, 4)]),
        # The single broker of its rack holds a replica of each partition.
        ([3, 3, 1], 3, [1, 1, 1]),
        # Half of the brokers are in one rack, which can hold only one replica of each partition.
        ([6, 1, 2], 2, [1, Fraction(1, 3), Fraction(2, 3)]),
        # Fewer racks than replicas: one replica in each rack, and the rest by rack size.
        ([4, 2], 3, [2, 1]),
        ([5, 1], 3, [2, 1]),
    ],
)
def test_the_share_of_a_rack_follows_its_size_up_to_one_replica_of_each_partition(
    sizes: list[int], factor: int, shares: list[Fraction]
) -> None:
    assert rack_shares(sizes, factor) == shares


@pytest.mark.rule("placement-keeps-replicas-apart", "placement-spreads-leaders")
@given(PARTITIONS, st.integers(2, 12), STARTS)
def test_leaders_of_a_dead_broker_spread_over_all_survivors(
    partitions: int, brokers: int, start: int
) -> None:
    replicas = placed(partitions, 2, without_racks(brokers), start)
    heirs = Counter(follower for leader, follower in replicas if leader == 10)
    counts = [heirs[10 + b] for b in range(1, brokers)]
    assert max(counts) - min(counts) <= 1


@given(PARTITIONS, st.integers(2, 4), st.integers(1, 5), STARTS)
def test_leaders_of_a_dead_broker_spread_over_all_survivors_in_racks_of_equal_size(
    partitions: int, racks: int, size: int, start: int
) -> None:
    brokers = in_racks([size] * racks)
    replicas = placed(partitions, 2, brokers, start)
    heirs = Counter(follower for leader, follower in replicas if leader == 10)
    counts = [heirs[b.broker_id] for b in brokers if b.rack != "rack 0"]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("sizes", [[2, 1, 1], [1, 2, 3], [4, 2, 2, 1], [3, 3, 4], [1, 1, 2, 2, 3]])
def test_in_uneven_racks_leaders_of_a_dead_broker_spread_by_the_load_of_survivors(
    sizes: list[int],
) -> None:
    brokers = in_racks(sizes)
    rounds = 4 * len(brokers)
    replicas = placed(rounds * len(brokers), 2, brokers, 3)
    # Each broker leads an equal share of the partitions; the rest of its replicas follow.
    following = [
        share / size - Fraction(1, len(brokers))
        for share, size in zip(rack_shares(sizes, 2), sizes, strict=True)
    ]
    for dead in brokers:
        heirs = Counter(follower for leader, follower in replicas if leader == dead.broker_id)
        others = {b.broker_id: following[int(b.rack[5:])] for b in brokers if b.rack != dead.rack}
        for broker_id, part in others.items():
            assert heirs[broker_id] <= 1.75 * float(rounds * part / sum(others.values())) + 1


def test_topics_start_at_different_brokers() -> None:
    first = {place(0, 1, without_racks(5), start_of(f"topic-{n}"))[0] for n in range(50)}
    assert first == {10, 11, 12, 13, 14}


@pytest.mark.parametrize("factor", [0, 4])
def test_more_replicas_than_brokers_are_rejected_with_the_numbers(factor: int) -> None:
    with pytest.raises(ValueError, match="between 1 and 3"):
        place(0, factor, without_racks(3), 0)


def test_without_racks_the_pattern_follows_the_formula() -> None:
    """This version completes what an earlier version of the controller began."""
    brokers, start = 5, 7
    for partition in range(40):
        first = (partition + start) % brokers
        turn = partition // brokers + start // brokers
        distances = [0] + [1 + (turn + j) % (brokers - 1) for j in range(2)]
        expected = tuple(10 + (first + d) % brokers for d in distances)
        assert place(partition, 3, without_racks(brokers), start) == expected


def test_brokers_without_a_rack_do_not_count_as_one_rack() -> None:
    brokers = [RackedBroker(1, "a"), RackedBroker(2, "a"), RackedBroker(3), RackedBroker(4)]
    for replicas in placed(24, 3, brokers, 0):
        assert not {1, 2} <= set(replicas)


def test_placement_does_not_depend_on_the_order_of_requests() -> None:
    brokers = in_racks([1, 3, 2])
    last = place(30, 3, brokers, 11)
    for other in range(6):  # enough to evict the topic above from the cache
        place(0, 2, in_racks([1, 2 + other]), other)
    assert placed(31, 3, brokers, 11)[30] == last
