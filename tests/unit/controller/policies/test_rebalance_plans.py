from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog_controller.policies.balancing import plan_rebalance
from tidelog_controller.policies.racks import RackedBroker
from tidelog_controller.policies.uneven_racks import rack_shares
from unit.controller.policies.plan_cases import (
    Case,
    Replicas,
    applied,
    cases,
    check_summary,
    crowded,
    in_racks,
    leaders,
    loads,
    placed,
    unevenness,
    without_racks,
)

RACKS = st.lists(st.integers(1, 3), min_size=1, max_size=4)


@given(cases())
def test_without_racks_replicas_are_balanced_within_one(case: Case) -> None:
    after = applied(case.assignment, plan_rebalance(case.assignment, case.brokers))
    assert unevenness(loads(after, case.ids)) <= 1


@given(cases())
def test_without_racks_leaders_are_balanced_within_one(case: Case) -> None:
    after = applied(case.assignment, plan_rebalance(case.assignment, case.brokers))
    assert unevenness(leaders(after, case.ids)) <= 1


@given(cases(racks=RACKS))
def test_every_partition_keeps_its_replication_factor_on_distinct_brokers(case: Case) -> None:
    after = applied(case.assignment, plan_rebalance(case.assignment, case.brokers))
    for partition, replicas in case.assignment.items():
        assert len(set(after[partition])) == len(after[partition]) == len(replicas)
        assert set(after[partition]) <= set(case.ids)


@given(cases(racks=RACKS))
def test_no_rack_holds_two_more_of_a_partition_than_another_that_has_a_free_broker(
    case: Case,
) -> None:
    after = applied(case.assignment, plan_rebalance(case.assignment, case.brokers))
    assert crowded(after, case.brokers) == []


@pytest.mark.rule("placement-uses-racks")
@given(cases(racks=RACKS, factors=st.integers(1, 4)))
def test_in_racks_the_load_of_every_broker_follows_from_spread_and_balance(case: Case) -> None:
    after = applied(case.assignment, plan_rebalance(case.assignment, case.brokers))
    sizes = [len(list(g)) for _, g in itertools.groupby(b.rack for b in case.brokers)]
    factor = max(map(len, after.values()), default=1)
    shares = rack_shares(sizes, factor)
    for broker, load in zip(case.brokers, loads(after, case.ids), strict=True):
        rack = int(broker.rack.removeprefix("rack "))
        assert abs(load - shares[rack] * len(after) / sizes[rack]) < 1


@given(cases(racks=RACKS))
def test_the_summary_of_a_plan_matches_its_moves(case: Case) -> None:
    check_summary(case.assignment, plan_rebalance(case.assignment, case.brokers))


@given(cases(racks=RACKS))
def test_a_balanced_cluster_is_left_unchanged(case: Case) -> None:
    after = applied(case.assignment, plan_rebalance(case.assignment, case.brokers))
    assert plan_rebalance(after, case.brokers).moves == ()


@given(cases(racks=RACKS), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(case: Case, random: object) -> None:
    entries = list(case.assignment.items())
    brokers = list(case.brokers)
    random.shuffle(entries)  # type: ignore[attr-defined]
    random.shuffle(brokers)  # type: ignore[attr-defined]
    shuffled = plan_rebalance(dict(entries), brokers)
    assert shuffled == plan_rebalance(case.assignment, case.brokers)


def fewest_added(case: Case) -> int:
    """The minimum, from a search of all assignments that respect the racks and are balanced
    best.
    """
    best = (0, 0)
    choices = [
        [
            set(chosen)
            for chosen in itertools.combinations(case.ids, len(replicas))
            if not crowded({partition: chosen}, case.brokers)
        ]
        for partition, replicas in case.assignment.items()
    ]
    before = list(case.assignment.values())
    for sets in itertools.product(*choices):
        evenness = -sum(sum(b in s for s in sets) ** 2 for b in case.ids)
        kept = sum(len(s & set(r)) for s, r in zip(sets, before, strict=True))
        best = max(best, (evenness, kept)) if best != (0, 0) else (evenness, kept)
    return sum(map(len, before)) - best[1]


@settings(max_examples=60)
@given(
    cases(racks=RACKS.filter(lambda sizes: 2 <= sum(sizes) <= 4), factors=st.integers(2, 3), most=4)
)
def test_no_equally_balanced_plan_adds_fewer_replicas(case: Case) -> None:
    plan = plan_rebalance(case.assignment, case.brokers)
    assert plan.minimum_replicas_added <= fewest_added(case) == plan.replicas_added


def test_of_two_replicas_in_one_rack_the_follower_is_moved() -> None:
    """Brokers 10 and 11 share a rack and hold equally many replicas."""
    assignment = {TopicPartition("a", 0): (10, 11, 12), TopicPartition("a", 1): (11, 10, 12)}
    plan = plan_rebalance(assignment, in_racks([2, 1, 1]))
    assert plan.replicas_added == 2
    assert plan.leaders_changed == 0


def test_the_broker_that_lacks_most_is_given_replicas_first_even_as_leader() -> None:
    """Broker 10 follows nothing that broker 12, in a rack with 11, could not follow in its
    place.
    """
    brokers = [RackedBroker(b, f"rack {r}") for b, r in ((10, 0), (11, 1), (12, 1), (13, 2))]
    replicas = [(10, 11), (10, 13), (11, 10)]
    assignment = {TopicPartition("a", number): chosen for number, chosen in enumerate(replicas)}
    plan = plan_rebalance(assignment, brokers)
    assert plan.replicas_added == 1


@pytest.mark.rule("brokers-added-and-removed")
@given(st.integers(2, 12), st.integers(0, 8), st.integers(0, 60), st.integers(1, 4))
def test_growing_copies_to_each_new_broker_its_share_and_nothing_else(
    old: int, new: int, partitions: int, factor: int
) -> None:
    brokers = without_racks(old + new)
    factor = min(factor, old)
    # The old brokers are balanced, since partitions come in whole rounds.
    assignment = placed(brokers[:old], partitions * old, factor)
    plan = plan_rebalance(assignment, brokers)
    each, rest = divmod(len(assignment) * factor, len(brokers))
    # With very few replicas, each old broker has to give away more than the new ones lack.
    given = old * max(0, partitions * factor - each - (rest > 0))
    assert plan.replicas_added == plan.minimum_replicas_added == max(new * each, given)
    old_ids = {broker.broker_id for broker in brokers[:old]}
    gained = {b for move in plan.moves for b in set(move.target) - set(move.original)}
    assert not gained & old_ids


@given(st.integers(2, 12), st.integers(1, 8), st.integers(1, 60), st.integers(1, 4))
def test_growing_changes_few_more_leaders_than_the_new_brokers_get(
    old: int, new: int, partitions: int, factor: int
) -> None:
    brokers = without_racks(old + new)
    assignment = placed(brokers[:old], partitions * old, min(factor, old))
    plan = plan_rebalance(assignment, brokers)
    each = -(-len(assignment) // len(brokers))
    assert plan.leaders_changed <= new * each + old


@pytest.mark.parametrize(
    ("sizes", "added"),
    [
        # Each rack has one replica of every partition, so it is balanced within itself.
        ([1, 1, 1], [1, 1, 0]),
        ([2, 2, 2], [1, 1, 1]),
        ([2, 2, 2], [2, 0, 0]),
    ],
)
def test_growing_in_racks_copies_within_the_racks_that_grow(
    sizes: list[int], added: list[int]
) -> None:
    assignment = placed(in_racks(sizes), 60, 3)
    # The old brokers keep their ids.
    grown = in_racks(sizes) + [
        RackedBroker(50 + rack * 10 + i, f"rack {rack}")
        for rack, count in enumerate(added)
        for i in range(count)
    ]
    plan = plan_rebalance(assignment, grown)
    assert plan.replicas_added == sum(60 * a // (s + a) for s, a in zip(sizes, added, strict=True))
    assert plan.replicas_added == plan.minimum_replicas_added
    assert crowded(applied(assignment, plan), grown) == []


def test_a_new_rack_takes_a_replica_of_each_partition_with_two_in_one_rack() -> None:
    old = in_racks([3, 3])
    assignment = placed(old, 30, 3)
    grown = [*old, RackedBroker(50, "rack 2"), RackedBroker(51, "rack 2")]
    plan = plan_rebalance(assignment, grown)
    assert plan.replicas_added == plan.minimum_replicas_added == 30
    assert crowded(applied(assignment, plan), grown) == []


@given(st.integers(2, 9), st.integers(1, 40), st.integers(2, 4), st.randoms(use_true_random=False))
def test_leaders_are_balanced_by_order_alone_where_replicas_are_balanced(
    count: int, rounds: int, factor: int, random: object
) -> None:
    brokers = without_racks(count)
    assignment = placed(brokers, rounds * count, min(factor, count))
    for partition, replicas in assignment.items():
        order = list(replicas)
        random.shuffle(order)  # type: ignore[attr-defined]
        assignment[partition] = tuple(order)
    plan = plan_rebalance(assignment, brokers)
    assert plan.replicas_added == 0
    after = applied(assignment, plan)
    assert set(leaders(after, [b.broker_id for b in brokers])) == {rounds}


@given(cases(racks=RACKS, factors=st.integers(2, 4)))
def test_in_racks_leaders_are_balanced_within_one(case: Case) -> None:
    after = applied(case.assignment, plan_rebalance(case.assignment, case.brokers))
    assert unevenness(leaders(after, case.ids)) <= 1


def test_where_no_order_balances_leaders_replicas_are_exchanged() -> None:
    """All that broker 10 leads has no other replica; broker 10 becomes a follower elsewhere."""
    assignment: Replicas = {TopicPartition("a", p): (10,) for p in range(6)}
    assignment |= {TopicPartition("b", p): (11, 12) for p in range(6)}
    brokers = without_racks(3)
    after = applied(assignment, plan_rebalance(assignment, brokers))
    assert loads(after, [10, 11, 12]) == [6, 6, 6]
    assert leaders(after, [10, 11, 12]) == [4, 4, 4]


def test_a_remaining_replica_keeps_its_place_in_the_order() -> None:
    assignment = {TopicPartition("a", 0): (10, 11, 12), TopicPartition("a", 1): (11, 10, 12)}
    after = applied(assignment, plan_rebalance(assignment, without_racks(4)))
    moved = [(old, after[p]) for p, old in assignment.items() if after[p] != old]
    assert moved
    for old, new in moved:
        assert all(a == b or b == 13 for a, b in zip(old, new, strict=True))


def test_partitions_of_all_topics_are_moved_evenly() -> None:
    brokers = without_racks(3)
    assignment = {
        TopicPartition(topic, p): replicas
        for topic in ("a", "b", "c")
        for (_, p), replicas in placed(brokers[:2], 8, 2).items()
    }
    plan = plan_rebalance(assignment, brokers)
    moved = [move.partition.topic for move in plan.moves if 12 in move.target]
    assert unevenness([moved.count(topic) for topic in ("a", "b", "c")]) <= 2


def test_replicas_on_an_excluded_broker_stay_there() -> None:
    assignment = {TopicPartition("a", p): (99, 10) for p in range(4)}
    plan = plan_rebalance(assignment, without_racks(3))
    assert all(move.target[0] == 99 for move in plan.moves)
    assert unevenness(loads(applied(assignment, plan), [10, 11, 12])) <= 1


def test_a_rebalance_without_brokers_is_rejected() -> None:
    with pytest.raises(TidelogError, match="start one") as rejection:
        plan_rebalance({TopicPartition("a", 0): (1,)}, [])
    assert rejection.value.code is ErrorCode.NOT_ENOUGH_BROKERS


def test_ten_thousand_partitions_are_planned() -> None:
    old = in_racks([10, 10, 10])
    assignment = placed(old, 10_020, 3)
    grown = [*old, RackedBroker(50, "rack 0"), RackedBroker(51, "rack 1")]
    plan = plan_rebalance(assignment, grown)
    after = applied(assignment, plan)
    # Each rack holds one replica of each partition; an eleventh broker joins ten.
    assert plan.replicas_added == plan.minimum_replicas_added == 2 * (10_020 // 11)
    assert unevenness(leaders(after, [b.broker_id for b in grown])) <= 1
    assert crowded(after, grown) == []
