"""Steps of a partition's reassignment, and properties of every step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog.model import NO_LEADER
from tidelog_controller.policies.electability import LiveBroker
from tidelog_controller.policies.reassignment import (
    RequestedMove,
    is_cancelled,
    min_isr_in_force,
    missing_for_cancellation,
    missing_for_switch,
    next_move_step,
)
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member, Moving
from tidelog_runtime.topic_config import TopicConfig

EPOCH = 7
BROKERS = (1, 2, 3, 4, 5, 6)
MIN_ISR_OF = TopicConfig().min_isr
TO_456 = Moving("op", (1, 2, 3), (4, 5, 6))
TO_124 = Moving("op", (1, 2, 3), (4, 2, 1))


def live(*broker_ids: int, stopping: tuple[int, ...] = ()) -> dict[int, LiveBroker]:
    return {b: LiveBroker(10 * b, b not in stopping, 10 * b, 10 * b) for b in broker_ids}


ALL = live(*BROKERS)


def members(*broker_ids: int) -> tuple[Member, ...]:
    return tuple(Member(b, 10 * b) for b in broker_ids)


def partition(
    *isr: int,
    moving: Moving | None = None,
    leader: int = 1,
    eligible: tuple[int, ...] = (),
    min_isr: int = 2,
) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id="id",
        replicas=moving.replicas if moving else (1, 2, 3),
        controller_epoch=3,
        leader=leader,
        leader_epoch=EPOCH,
        isr=members(*isr),
        eligible=members(*eligible),
        min_isr=min_isr,
        moving=moving,
    )


def step(
    state: LeaderAndIsr,
    brokers: dict[int, LiveBroker] = ALL,
    requested: RequestedMove | None = None,
    config: TopicConfig | None = None,
) -> LeaderAndIsr | None:
    return next_move_step(state, brokers, 4, requested, (config or TopicConfig()).min_isr)


def want(*target: int, cancelled: bool = False, operation: str = "op") -> RequestedMove:
    return RequestedMove(operation, target, cancelled)


CANCEL = want(4, 5, 6, cancelled=True)


# -- activation ---------------------------------------------------------------------------


@pytest.mark.rule("reassignment-of-replicas")
def test_activation_appends_the_target_brokers_to_the_original_replicas() -> None:
    new = step(partition(1, 2, 3), requested=want(4, 2, 5))
    assert new is not None
    assert (new.replicas, new.moving) == ((1, 2, 3, 4, 5), Moving("op", (1, 2, 3), (4, 2, 5)))


def test_activation_leaves_leader_epoch_and_isr_as_they_are() -> None:
    old = partition(1, 3)
    new = step(old, requested=want(4, 5, 6))
    assert new == replace(old, replicas=(1, 2, 3, 4, 5, 6), moving=TO_456)


def test_no_move_begins_while_no_leader_serves() -> None:
    wanted = want(4, 5, 6)
    assert step(partition(1, 2, leader=NO_LEADER), requested=wanted) is None
    assert step(partition(1, 2), live(2, 3, 4, 5, 6), wanted) is None
    assert step(partition(1, 2), live(*BROKERS, stopping=(1,)), wanted) is None


def test_a_move_to_the_current_replicas_begins_nothing() -> None:
    assert step(partition(1, 2, 3), requested=want(1, 2, 3)) is None


def test_another_order_of_the_same_replicas_is_a_move() -> None:
    begun = step(partition(1, 2, 3), requested=want(3, 1, 2))
    assert begun is not None
    done = step(begun, requested=want(3, 1, 2))
    assert done is not None
    assert (done.replicas, done.leader, done.moving) == ((3, 1, 2), 1, None)


def test_a_move_cancelled_before_it_began_does_not_begin() -> None:
    assert step(partition(1, 2, 3), requested=CANCEL) is None


def test_an_empty_or_repeating_target_begins_nothing() -> None:
    assert step(partition(1, 2, 3), requested=want()) is None
    assert step(partition(1, 2, 3), requested=want(4, 4, 5)) is None


def test_the_next_move_begins_when_the_previous_one_has_ended() -> None:
    wanted = want(2, 3, 5, operation="next")
    assert step(partition(1, 2, 3, moving=TO_456), requested=wanted) is None
    assert step(partition(1, 2, 3), requested=wanted) is not None


# -- the switch ---------------------------------------------------------------------------


@pytest.mark.rule("reassignment-done-when-in-sync")
def test_the_switch_waits_for_every_replica_of_the_target() -> None:
    assert step(partition(1, 2, 3, 4, 5, moving=TO_456)) is None
    assert missing_for_switch(partition(1, 4, 5, moving=TO_456), ALL) == (6,)


@pytest.mark.rule("reassignment-done-when-in-sync")
def test_the_switch_does_not_wait_for_removed_replicas() -> None:
    new = step(partition(1, 4, 5, 6, moving=TO_456), live(1, 4, 5, 6))
    assert new is not None
    assert (new.replicas, new.isr, new.moving) == ((4, 5, 6), members(4, 5, 6), None)


def test_a_stopping_or_restarted_member_is_waited_for() -> None:
    state = partition(1, 2, 4, moving=TO_124)
    previous = {**ALL, 4: LiveBroker(45, True, 40, 40)}
    assert step(state, previous) is None
    assert step(state, live(*BROKERS, stopping=(4,))) is None


def test_a_leader_in_the_target_continues_in_a_new_epoch() -> None:
    new = step(partition(1, 2, 3, 4, moving=TO_124, leader=2))
    assert new is not None
    assert (new.leader, new.leader_epoch, new.controller_epoch) == (2, EPOCH + 1, 4)


def test_if_the_leader_is_removed_the_first_target_replica_leads() -> None:
    new = step(partition(1, 4, 5, 6, moving=TO_456))
    assert new is not None
    assert (new.leader, new.leader_epoch) == (4, EPOCH + 1)


def test_a_move_continues_after_its_operation_is_gone() -> None:
    ready = partition(1, 4, 5, 6, moving=TO_456)
    assert step(ready, requested=None) == step(ready, requested=want(4, 5, 6))


# -- cancellation -------------------------------------------------------------------------


@pytest.mark.rule("cancelled-move-restores-replicas")
def test_a_cancellation_leaves_the_original_replicas_alone_in_a_new_epoch() -> None:
    new = step(partition(1, 2, 4, moving=TO_456), requested=CANCEL)
    assert new is not None
    assert (new.replicas, new.isr, new.moving) == ((1, 2, 3), members(1, 2), None)
    assert (new.leader, new.leader_epoch) == (1, EPOCH + 1)


def test_a_cancellation_elects_where_the_leader_was_added() -> None:
    new = step(partition(2, 3, 4, moving=TO_456, leader=4), requested=CANCEL)
    assert new is not None
    assert new.leader == 2


def test_a_cancellation_waits_while_no_original_replica_is_in_sync() -> None:
    state = partition(4, 5, moving=TO_456, leader=4)
    assert step(state, requested=CANCEL) is None
    assert missing_for_cancellation(state, ALL, 2) == (1, 2, 3)


@pytest.mark.rule("cancelled-move-restores-replicas")
def test_a_cancellation_waits_while_it_would_leave_fewer_copies_than_min_isr() -> None:
    state = partition(1, 4, moving=TO_456)
    assert step(state, requested=CANCEL) is None
    assert missing_for_cancellation(state, ALL, 2) == (2, 3)


def test_below_min_isr_a_cancellation_that_removes_no_member_does_not_wait() -> None:
    new = step(partition(1, moving=TO_456, eligible=(2, 4)), requested=CANCEL)
    assert new is not None
    assert (new.isr, new.eligible) == (members(1), members(2))


def test_a_cancellation_to_fewer_replicas_than_min_isr_waits_for_all_of_them_at_most() -> None:
    moving = Moving("op", (1, 2), (4, 5, 6))
    assert missing_for_cancellation(partition(1, 4, 5, 6, moving=moving), live(1, 2), 3) == (2,)
    assert missing_for_cancellation(partition(1, 2, 4, moving=moving), live(1, 2), 3) == ()


def test_a_cancellation_does_not_count_members_that_are_gone() -> None:
    state = partition(1, 2, 4, moving=TO_456)
    assert missing_for_cancellation(state, live(1, 4, 5, 6), 2) == (2, 3)


def test_a_cancellation_takes_precedence_over_a_possible_switch() -> None:
    new = step(partition(1, 2, 3, 4, 5, 6, moving=TO_456), requested=CANCEL)
    assert new is not None
    assert new.replicas == (1, 2, 3)


def test_only_a_move_of_the_cancelled_operation_is_cancelled() -> None:
    other = want(4, 5, 6, cancelled=True, operation="other")
    assert not is_cancelled(TO_456, other)
    assert step(partition(1, 2, 4, moving=TO_456), requested=other) is None


# -- min ISR ------------------------------------------------------------------------------


def test_min_isr_is_limited_by_the_smaller_side_while_moving_and_then_by_the_target() -> None:
    begun = step(partition(1, 2, 3), requested=want(4))
    assert begun is not None
    assert begun.min_isr == 1
    more = replace(begun, replicas=(4,), isr=members(4), leader=4, moving=None)
    raised = step(more, requested=want(4, 5, 6))
    assert raised is not None
    assert raised.min_isr == 1
    done = step(replace(raised, isr=members(4, 5, 6)))
    assert done is not None
    assert (done.replicas, done.min_isr) == ((4, 5, 6), 2)


def test_after_a_cancellation_min_isr_is_limited_by_the_original_replicas() -> None:
    moving = Moving("op", (1, 2, 3), (4,))
    cancel = want(4, cancelled=True)
    assert step(partition(1, 4, moving=moving, min_isr=1), requested=cancel) is None
    new = step(partition(1, 2, 4, moving=moving, min_isr=1), requested=cancel)
    assert new is not None
    assert new.min_isr == 2


def test_a_new_min_isr_of_the_topic_is_in_force_at_once_even_while_moving() -> None:
    three = TopicConfig(min_insync_replicas=3)
    settled = step(partition(1, 2, 3), config=three)
    moving = step(partition(1, 2, 3, moving=TO_456), config=three)
    assert settled == partition(1, 2, 3, min_isr=3)
    assert moving == partition(1, 2, 3, moving=TO_456, min_isr=3)


@pytest.mark.rule("every-write-sets-eligible-set")
def test_a_new_min_isr_of_the_topic_empties_the_eligible_set() -> None:
    state = partition(1, eligible=(2,))
    higher = step(state, config=TopicConfig(min_insync_replicas=3))
    assert higher is not None
    assert (higher.min_isr, higher.isr, higher.eligible) == (3, members(1), ())


def test_without_a_leader_min_isr_and_eligible_set_stay() -> None:
    state = partition(1, eligible=(2,), leader=NO_LEADER)
    assert step(state, config=TopicConfig(min_insync_replicas=1)) is None


# -- properties ---------------------------------------------------------------------------


@st.composite
def incarnations(draw: st.DrawFn) -> dict[int, LiveBroker]:
    there = draw(st.sets(st.sampled_from(BROKERS)))
    found = {}
    for broker_id in sorted(there):
        epoch = draw(st.integers(1, 3))
        found[broker_id] = LiveBroker(epoch, draw(st.booleans()), epoch, epoch)
    return found


def some(draw: st.DrawFn) -> tuple[int, ...]:
    return tuple(draw(st.permutations(BROKERS)))[: draw(st.integers(1, 4))]


@st.composite
def states(draw: st.DrawFn) -> LeaderAndIsr:
    """Any state that keeps the invariants of `LeaderAndIsr`, mostly during a move."""
    original = some(draw)
    moving = Moving("op", original, some(draw)) if draw(st.integers(0, 3)) else None
    replicas = moving.replicas if moving else original
    order = draw(st.permutations(replicas))
    count = draw(st.integers(1, len(order)))
    known = [Member(b, draw(st.integers(1, 3))) for b in order]
    min_isr = draw(st.integers(1, 3))
    rest = known[count:] if count < min_isr else []
    return LeaderAndIsr(
        topic_id="id",
        replicas=replicas,
        controller_epoch=1,
        leader=draw(st.sampled_from([NO_LEADER, *order[:count]])),
        leader_epoch=draw(st.integers(0, 3)),
        isr=tuple(sorted(known[:count])),
        eligible=tuple(sorted(m for m in rest if draw(st.booleans()))),
        min_isr=min_isr,
        moving=moving,
    )


@st.composite
def target_moves(draw: st.DrawFn) -> RequestedMove | None:
    if draw(st.booleans()):
        return None
    return RequestedMove(draw(st.sampled_from(["op", "other"])), some(draw), draw(st.booleans()))


CONFIGS = st.builds(TopicConfig, min_insync_replicas=st.none() | st.integers(1, 4))


@given(states(), incarnations(), target_moves(), CONFIGS)
def test_every_step_keeps_the_invariants(
    state: LeaderAndIsr,
    live: dict[int, LiveBroker],
    requested: RequestedMove | None,
    config: TopicConfig,
) -> None:
    new = next_move_step(state, live, 4, requested, config.min_isr)
    if new is None:
        return
    assert new != state
    eligible = {member.broker_id for member in new.eligible}
    assert new.leader in new.isr_ids
    assert not eligible & new.isr_ids
    assert eligible | new.isr_ids <= set(new.replicas)
    assert not eligible or len(new.isr) < new.min_isr
    assert new.replicas == (new.moving.replicas if new.moving else new.replicas)
    assert len(set(new.replicas)) == len(new.replicas)
    assert new.min_isr == min_isr_in_force(new, config.min_isr)


@given(states(), incarnations(), target_moves(), CONFIGS)
def test_no_step_adds_a_member_to_isr_or_eligible_set(
    state: LeaderAndIsr,
    live: dict[int, LiveBroker],
    requested: RequestedMove | None,
    config: TopicConfig,
) -> None:
    """Therefore each broker that may lead afterwards has all that was committed before."""
    new = next_move_step(state, live, 4, requested, config.min_isr)
    if new is None:
        return
    assert set(new.isr) <= set(state.isr)
    assert set(new.eligible) <= set(state.eligible)


@given(states(), incarnations(), target_moves(), CONFIGS)
def test_the_replicas_are_both_sides_of_the_move_or_one_of_them(
    state: LeaderAndIsr,
    live: dict[int, LiveBroker],
    requested: RequestedMove | None,
    config: TopicConfig,
) -> None:
    new = next_move_step(state, live, 4, requested, config.min_isr)
    if new is None:
        return
    if state.moving is None:
        # The existing replicas stay, and the ISR does not grow.
        assert new.replicas[: len(state.replicas)] == state.replicas
        assert (new.leader, new.leader_epoch, new.isr) == (
            state.leader,
            state.leader_epoch,
            state.isr,
        )
    elif new.moving is not None:
        assert (new.moving, new.replicas) == (state.moving, state.replicas)
    else:
        assert new.replicas in (state.moving.original, state.moving.target)


@given(states(), incarnations(), target_moves(), CONFIGS)
def test_the_end_of_a_move_leaves_enough_copies_and_a_leader_that_serves(
    state: LeaderAndIsr,
    live: dict[int, LiveBroker],
    requested: RequestedMove | None,
    config: TopicConfig,
) -> None:
    new = next_move_step(state, live, 4, requested, config.min_isr)
    if new is None or state.moving is None or new.moving is not None:
        return
    assert (new.leader_epoch, new.controller_epoch) == (state.leader_epoch + 1, 4)
    assert live[new.leader].running
    assert new.leader_broker_epoch == live[new.leader].broker_epoch
    in_sync = [m for m in new.isr if m.broker_id in live]
    here = [m for m in in_sync if live[m.broker_id].broker_epoch == m.broker_epoch]
    if is_cancelled(state.moving, requested):
        assert new.replicas == state.moving.original
        assert len(here) >= min(new.min_isr, len(state.isr), len(new.replicas))
    else:
        assert new.replicas == state.moving.target
        assert len(here) == len(new.replicas)


@pytest.mark.rule("cancelled-move-restores-replicas")
@given(states(), incarnations(), target_moves(), CONFIGS)
def test_the_leader_epoch_grows_with_the_end_of_a_move_and_never_otherwise(
    state: LeaderAndIsr,
    live: dict[int, LiveBroker],
    requested: RequestedMove | None,
    config: TopicConfig,
) -> None:
    new = next_move_step(state, live, 4, requested, config.min_isr)
    if new is None:
        return
    ended = state.moving is not None and new.moving is None
    assert new.leader_epoch == state.leader_epoch + (1 if ended else 0)


@given(states(), target_moves(), CONFIGS)
def test_with_all_replicas_in_sync_a_move_completes_and_its_result_is_stable(
    state: LeaderAndIsr, requested: RequestedMove | None, config: TopicConfig
) -> None:
    """At most two moves: the one that was begun, and the target."""
    assume(state.leader != NO_LEADER)
    here = {b: LiveBroker(5, True, 5, 5) for b in BROKERS}

    def all_in_sync(state: LeaderAndIsr) -> LeaderAndIsr:
        return state.with_isr(Member(b, 5) for b in state.replicas)

    state = all_in_sync(state)
    for _ in range(5):
        new = next_move_step(state, here, 4, requested, config.min_isr)
        if new is None:
            break
        state = all_in_sync(new)
    assert next_move_step(state, here, 4, requested, config.min_isr) is None
    assert state.moving is None
    if requested is not None and not requested.cancelled:
        assert state.replicas == requested.target
