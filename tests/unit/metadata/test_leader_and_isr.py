"""Consequences of every write of a partition's key (rules `every-write-sets-eligible-set` and
`damaged-replica-resigns-first`)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model import NO_LEADER
from tidelog.state_changes.event import Change
from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    LeaderAndIsr,
    Member,
)


def members(*broker_ids: int) -> tuple[Member, ...]:
    return tuple(Member(b, 10 * b) for b in broker_ids)


def state(*isr: int, eligible: tuple[int, ...] = (), leader: int = 1) -> LeaderAndIsr:
    return LeaderAndIsr("id", (1, 2, 3, 4), 1, leader, 5, members(*isr), members(*eligible), 2)


@pytest.mark.rule("every-write-sets-eligible-set")
def test_an_isr_at_min_isr_leaves_no_replica_eligible() -> None:
    assert state(1, eligible=(2,)).with_isr(members(1, 3)).eligible == ()


@pytest.mark.rule("hw-held-below-min-isr")
def test_a_replica_that_leaves_an_isr_below_min_isr_is_eligible() -> None:
    assert state(1, 2).with_isr(members(1)).eligible == members(2)


def test_an_election_changes_only_leader_epoch_and_members() -> None:
    before = replace(state(1, 2, leader=2), unclean_leader_epoch=3, change=Change("c1-1"))
    after = before.led_by(1, members(1), controller_epoch=7)
    expected = replace(before.with_isr(members(1)), leader=1, leader_epoch=6, controller_epoch=7)
    assert after.fields == expected.fields
    assert after.eligible == members(2)


def test_an_eligible_replica_stays_so_while_the_isr_is_below_min_isr() -> None:
    new = state(1, eligible=(2, 3)).with_isr(members(3))
    assert (new.isr, new.eligible) == (members(3), members(1, 2))


def test_a_member_removed_above_min_isr_is_not_eligible_when_the_isr_shrinks_further() -> None:
    # Replica 3 was removed above min ISR: records were committed without it.
    assert state(1, 2, 3).with_isr(members(1, 2)).with_isr(members(1)).eligible == members(2)


@pytest.mark.rule("every-write-sets-eligible-set")
def test_a_changed_min_isr_leaves_no_replica_eligible() -> None:
    lower = state(1, eligible=(2,)).with_min_isr(1)
    higher = state(1, eligible=(2,)).with_min_isr(3)
    assert (lower.min_isr, lower.eligible) == (1, ())
    assert (higher.min_isr, higher.eligible) == (3, ())


def test_an_unchanged_min_isr_changes_nothing() -> None:
    same = state(1, eligible=(2,))
    assert same.with_min_isr(2) == same


def test_a_resigned_follower_is_in_no_isr_and_has_no_incarnation() -> None:
    new = state(1, 2).resigned(2)
    assert (new.isr, new.eligible) == (members(1), (Member(2, NOT_WHOLE),))


def test_a_resigned_leader_remains_a_known_member_without_an_incarnation() -> None:
    new = state(1, 2).resigned(1)
    assert (new.leader, new.isr) == (1, (Member(1, NOT_WHOLE), Member(2, 20)))
    assert new.leader_broker_epoch == NOT_WHOLE


def test_without_a_leader_a_resigned_member_stays_in_its_set() -> None:
    new = state(1, eligible=(2,), leader=NO_LEADER).resigned(2)
    assert (new.isr, new.eligible) == (members(1), (Member(2, NOT_WHOLE),))


@given(
    st.sets(st.integers(1, 4), min_size=1),
    st.lists(
        st.one_of(
            st.tuples(st.just("isr"), st.sets(st.integers(1, 4), min_size=1)),
            st.tuples(st.just("resign"), st.integers(1, 4)),
            st.tuples(st.just("min isr"), st.integers(1, 3)),
        ),
        max_size=8,
    ),
)
def test_no_sequence_of_writes_breaks_the_invariants(
    first: set[int], writes: list[tuple[str, set[int] | int]]
) -> None:
    now = state(*sorted(first), leader=min(first))
    for kind, what in writes:
        if kind == "isr" and isinstance(what, set):
            # The leader's own change keeps it in the ISR.
            now = now.with_isr(members(*sorted(what | {now.leader})))
        elif kind == "resign" and isinstance(what, int):
            now = now.resigned(what)
        elif isinstance(what, int):
            now = now.with_min_isr(what)
        eligible = {member.broker_id for member in now.eligible}
        assert now.leader in now.isr_ids
        assert not eligible & now.isr_ids
        assert not eligible or len(now.isr) < now.min_isr
