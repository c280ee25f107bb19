"""Plans that empty brokers, and plans for another replication factor."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog_controller.policies.balancing import (
    Plan,
    plan_rebalance,
    plan_removal,
    plan_replication_factor,
)
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

RACKS = st.lists(st.integers(1, 3), min_size=2, max_size=4).filter(lambda sizes: sum(sizes) > 4)


@st.composite
def removals(
    draw: st.DrawFn, racks: st.SearchStrategy[list[int]] | None = None
) -> tuple[Case, list[int]]:
    """Enough brokers remain for the replication factors."""
    case = draw(cases(racks, least_brokers=5))
    spare = len(case.ids) - max(map(len, case.assignment.values()), default=1)
    removed = draw(st.lists(st.sampled_from(case.ids), max_size=spare, unique=True))
    return case, removed


def removal(case: Case, removed: list[int]) -> tuple[Plan, Replicas, list[int]]:
    """Of brokers that still run, and therefore are among the known brokers."""
    plan = plan_removal(case.assignment, case.brokers, removed)
    rest = [b for b in case.ids if b not in removed]
    return plan, applied(case.assignment, plan), rest


@pytest.mark.rule("brokers-added-and-removed")
@given(removals(RACKS))
def test_removed_brokers_hold_nothing(given_removal: tuple[Case, list[int]]) -> None:
    case, removed = given_removal
    _, after, _ = removal(case, removed)
    assert set(loads(after, removed)) <= {0}


@given(removals(RACKS))
def test_every_partition_keeps_its_replication_factor_on_distinct_brokers(
    given_removal: tuple[Case, list[int]],
) -> None:
    case, removed = given_removal
    _, after, _ = removal(case, removed)
    for partition, replicas in case.assignment.items():
        assert len(set(after[partition])) == len(after[partition]) == len(replicas)


@given(removals(RACKS))
def test_no_broker_that_stays_ends_with_fewer_replicas(
    given_removal: tuple[Case, list[int]],
) -> None:
    case, removed = given_removal
    _, after, rest = removal(case, removed)
    before = loads(case.assignment, rest)
    assert all(b <= a for b, a in zip(before, loads(after, rest), strict=True))


@given(removals())
def test_balanced_brokers_stay_balanced(given_removal: tuple[Case, list[int]]) -> None:
    case, removed = given_removal
    balanced = applied(case.assignment, plan_rebalance(case.assignment, case.brokers))
    _, after, rest = removal(Case(balanced, case.brokers), removed)
    assert unevenness(loads(after, rest)) <= 1
    assert unevenness(leaders(after, rest)) <= 1


@pytest.mark.rule("placement-uses-racks")
@given(removals(RACKS))
def test_partitions_spread_over_racks_stay_spread(
    given_removal: tuple[Case, list[int]],
) -> None:
    case, removed = given_removal
    spread = applied(case.assignment, plan_rebalance(case.assignment, case.brokers))
    rest = [broker for broker in case.brokers if broker.broker_id not in removed]
    # Where fewer racks than replicas remain, the replicas that stay may share racks.
    most = max(map(len, spread.values()), default=0)
    assume(len({broker.rack for broker in rest}) >= most)
    _, after, _ = removal(Case(spread, case.brokers), removed)
    assert crowded(after, rest) == []


@given(removals(RACKS))
def test_the_summary_of_a_plan_matches_its_moves(given_removal: tuple[Case, list[int]]) -> None:
    case, removed = given_removal
    plan, _, _ = removal(case, removed)
    check_summary(case.assignment, plan)


@given(removals(RACKS))
def test_a_second_removal_finds_nothing_to_do(given_removal: tuple[Case, list[int]]) -> None:
    case, removed = given_removal
    _, after, _ = removal(case, removed)
    assert plan_removal(after, case.brokers, removed).moves == ()


@given(st.integers(4, 12), st.integers(1, 3), st.integers(4, 30), st.integers(1, 3))
def test_little_more_than_the_load_of_the_removed_brokers_is_copied(
    count: int, gone: int, rounds: int, factor: int
) -> None:
    gone = min(gone, count - factor)
    assignment = placed(without_racks(count), rounds * count, factor)
    removed = list(range(10, 10 + gone))
    plan, after, rest = removal(Case(assignment, without_racks(count)), removed)
    assert plan.minimum_replicas_added == gone * rounds * factor
    assert plan.replicas_added <= 1.1 * plan.minimum_replicas_added
    assert unevenness(loads(after, rest)) <= 1


@given(st.integers(3, 8), st.integers(1, 4), st.integers(20, 40), st.integers(1, 3))
def test_shrinking_after_growth_copies_little(old: int, new: int, rounds: int, factor: int) -> None:
    """A new broker has to share its partitions with all others. If it shared them only with the
    other new brokers, these could take nothing when it is removed.
    """
    brokers = without_racks(old + new)
    assignment = placed(brokers[:old], rounds * old, factor)
    grown = applied(assignment, plan_rebalance(assignment, brokers))
    for removed in (10, 10 + old + new - 1):
        plan, after, rest = removal(Case(grown, brokers), [removed])
        assert plan.replicas_added <= 1.1 * loads(grown, [removed])[0]
        assert unevenness(loads(after, rest)) <= 1
        assert unevenness(leaders(after, rest)) <= 1


def test_a_dead_broker_is_emptied_too() -> None:
    assignment = placed(without_racks(4), 12, 2)
    plan = plan_removal(assignment, without_racks(4)[1:], [10])
    after = applied(assignment, plan)
    assert loads(after, [10, 11, 12, 13]) == [0, 8, 8, 8]
    assert leaders(after, [11, 12, 13]) == [4, 4, 4]


def test_a_remaining_leader_of_a_drained_partition_keeps_leading() -> None:
    assignment = placed(without_racks(5), 40, 3)
    plan = plan_removal(assignment, without_racks(5), [12])
    assert all(m.target[0] == m.original[0] for m in plan.moves if m.original[0] != 12)


@pytest.mark.parametrize(
    ("removed", "problem"),
    [
        ([10], r"broker 10 cannot be emptied: 3 brokers would remain, and topic b \(4\)"),
        ([10, 11], r"brokers 10, 11 .* 2 brokers would remain, and topics a \(3\), b \(4\)"),
        ([10, 11, 12], "1 broker would remain"),
    ],
)
def test_a_removal_that_leaves_too_few_brokers_is_rejected_and_names_the_topics(
    removed: list[int], problem: str
) -> None:
    assignment = placed(without_racks(4), 4, 3) | {TopicPartition("b", 0): (10, 11, 12, 13)}
    with pytest.raises(TidelogError, match=problem) as rejection:
        plan_removal(assignment, without_racks(4), removed)
    assert rejection.value.code is ErrorCode.NOT_ENOUGH_BROKERS


def test_a_topic_without_a_replica_on_the_removed_brokers_causes_no_rejection() -> None:
    assignment = {TopicPartition("a", 0): (10, 11, 12), TopicPartition("b", 0): (13,)}
    plan = plan_removal(assignment, without_racks(4), [13])
    assert plan.replicas_added == 1


def test_a_rejection_names_at_most_ten_topics() -> None:
    assignment = {TopicPartition(f"t{t:02}", 0): (10, 11) for t in range(13)}
    with pytest.raises(TidelogError, match=r"t09 \(2\) and 3 more have"):
        plan_removal(assignment, without_racks(2), [11])


# Replication factor.


@given(cases(RACKS), st.integers(1, 5))
def test_all_partitions_of_the_topics_get_the_factor_and_no_others_change(
    case: Case, factor: int
) -> None:
    plan = plan_replication_factor(case.assignment, case.brokers, ["a"], factor)
    after = applied(case.assignment, plan)
    for partition, replicas in after.items():
        if partition.topic == "a":
            assert len(set(replicas)) == len(replicas) == factor
        else:
            assert replicas == case.assignment[partition]
    check_summary(case.assignment, plan)


@given(cases(RACKS), st.integers(1, 5))
def test_a_new_factor_changes_no_preferred_leader_and_copies_no_more_than_needed(
    case: Case, factor: int
) -> None:
    plan = plan_replication_factor(case.assignment, case.brokers, ["a"], factor)
    assert plan.leaders_changed == 0
    more = sum(max(0, factor - len(r)) for p, r in case.assignment.items() if p.topic == "a")
    assert plan.replicas_added == plan.minimum_replicas_added == more


@given(st.integers(4, 10), st.integers(1, 20), st.integers(1, 4), st.integers(1, 4))
def test_balanced_brokers_stay_balanced_with_a_new_factor(
    count: int, rounds: int, factor: int, new_factor: int
) -> None:
    brokers = without_racks(count)
    assignment = placed(brokers, rounds * count, factor)
    plan = plan_replication_factor(assignment, brokers, ["a"], new_factor)
    assert {share.replicas_after for share in plan.brokers} == {rounds * new_factor}


@given(st.integers(1, 20), st.integers(1, 6), st.integers(1, 6))
def test_a_new_factor_respects_the_racks(rounds: int, factor: int, new_factor: int) -> None:
    brokers = in_racks([2, 2, 2])
    assignment = placed(brokers, rounds * 6, factor)
    plan = plan_replication_factor(assignment, brokers, ["a"], new_factor)
    assert crowded(applied(assignment, plan), brokers) == []


@pytest.mark.parametrize(("factor", "left"), [(3, {10, 11, 99}), (2, {10, 11}), (1, {10})])
def test_a_replica_on_an_excluded_broker_is_removed_first(factor: int, left: set[int]) -> None:
    """Even if it is the preferred leader: its broker may be dead."""
    assignment = {TopicPartition("a", 0): (99, 10, 11)}
    plan = plan_replication_factor(assignment, without_racks(2), ["a"], factor)
    assert set(applied(assignment, plan)[TopicPartition("a", 0)]) == left


def test_the_same_factor_changes_nothing() -> None:
    assignment = placed(without_racks(4), 12, 2)
    assert plan_replication_factor(assignment, without_racks(4), ["a"], 2).moves == ()


@pytest.mark.parametrize("factor", [0, 5])
def test_a_factor_above_the_number_of_brokers_is_rejected(factor: int) -> None:
    assignment = placed(without_racks(4), 4, 2)
    with pytest.raises(TidelogError, match=r"only 4 brokers.*request 1 to 4") as rejection:
        plan_replication_factor(assignment, without_racks(4), ["a"], factor)
    assert rejection.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
