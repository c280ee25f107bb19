"""How a partition is moved to other replicas ("Moving a partition", section 4 of
docs/internals/protocol.md). A pure function of its state, the live brokers and what is wanted.

Three writes of the partition's key, each decided by what the key says and by nothing else, so
that any controller goes on from any of them:

- *activation* makes the target's brokers replicas as well. Leader, epoch and ISR stay.
- *switch*, once every replica of the target is in the ISR (interleaving 16: those that leave
  may be dead): the target alone are the replicas.
- *cancellation*: the original replicas alone are the replicas again.

The last two take a new leader epoch, also where the leader stays: a replica that left and is
assigned again must find a newer epoch than the one in which it was assigned before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from tidelog.model import NO_LEADER
from tidelog_controller.policies.electability import LiveBroker, is_running
from tidelog_controller.policies.leader_election import leader_serves
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member, Moving

# The min ISR that a topic asks for with so many replicas.
MinIsrOf = Callable[[int], int]


class WantedMove(NamedTuple):
    """What an operation of this id wants of one partition: that it has the replicas of
    `target`, in that order, or, where it is `cancelled`, that it is moved no further by it.
    `trace_id`: of the request's W3C trace context; told, and never decided by."""

    operation: str
    target: tuple[int, ...]
    cancelled: bool = False
    trace_id: str = ""


def next_move_step(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    controller_epoch: int,
    wanted: WantedMove | None,
    min_isr_of: MinIsrOf,
) -> LeaderAndIsr | None:
    """The state that is to be written; None: nothing is to be done, or it waits.

    Only while a leader serves, since elections go before moves. Nothing that is wanted is
    needed to finish what was begun, but for its cancellation."""
    if not leader_serves(state, live):
        return None
    moving = state.moving
    if moving is None:
        if wanted is not None and _is_to_begin(state, wanted):
            moving = Moving(wanted.operation, state.replicas, wanted.target)
            return _activated(state, moving, min_isr_of)
    elif is_cancelled(moving, wanted):
        min_isr = min_isr_of(len(moving.original))
        if not missing_for_cancellation(state, live, min_isr):
            return _of_alone(state, live, moving.original, controller_epoch, min_isr)
    elif not missing_for_switch(state, live):
        min_isr = min_isr_of(len(moving.target))
        return _of_alone(state, live, moving.target, controller_epoch, min_isr)
    min_isr = min_isr_in_force(state, min_isr_of)
    # Without a leader this waits: of who is eligible nobody is to be forgotten then.
    return None if min_isr == state.min_isr else state.with_min_isr(min_isr)


def is_step(old: LeaderAndIsr, new: LeaderAndIsr) -> bool:
    """Whether the one became the other by one of the three writes, with a leader to follow."""
    same_topic = old.topic_id == new.topic_id
    return same_topic and old.moving != new.moving and new.leader != NO_LEADER


def is_cancelled(moving: Moving, wanted: WantedMove | None) -> bool:
    return wanted is not None and wanted.cancelled and wanted.operation == moving.operation


def min_isr_in_force(state: LeaderAndIsr, min_isr_of: MinIsrOf) -> int:
    """While a partition moves: what the fewer of its original and of its target replicas are
    asked for, since it may end as either."""
    moving = state.moving
    sides = (moving.original, moving.target) if moving else (state.replicas,)
    return min_isr_of(min(len(side) for side in sides))


def missing_for_switch(state: LeaderAndIsr, live: Mapping[int, LiveBroker]) -> tuple[int, ...]:
    """Those of the target that are not in the ISR in the present life of their running
    broker."""
    if state.moving is None:
        return ()
    return tuple(b for b in state.moving.target if not _is_in_sync(state, b, live))


def missing_for_cancellation(
    state: LeaderAndIsr, live: Mapping[int, LiveBroker], min_isr: int
) -> tuple[int, ...]:
    """Those of the original replicas for one of which a cancellation waits; empty: for none.

    Whom it takes out of the ISR is deleted. So it leaves there as many as `min_isr`, that of
    the original replicas, or takes nobody out: what was acknowledged keeps its copies. Where it
    goes back to fewer replicas than `min_isr`, all of them are enough: no others can follow."""
    if state.moving is None:
        return ()
    original = state.moving.original
    staying = [b for b in original if _is_in_sync(state, b, live)]
    if staying and len(staying) >= min(min_isr, len(state.isr), len(original)):
        return ()
    return tuple(b for b in original if b not in staying)


def _is_to_begin(state: LeaderAndIsr, wanted: WantedMove) -> bool:
    """Nothing is known of how its target came about, and without a replica there is no
    partition."""
    target = wanted.target
    is_possible = bool(target) and len(set(target)) == len(target)
    return is_possible and not wanted.cancelled and target != state.replicas


def _is_in_sync(state: LeaderAndIsr, broker_id: int, live: Mapping[int, LiveBroker]) -> bool:
    return is_running(broker_id, live) and (
        Member(broker_id, live[broker_id].broker_epoch) in state.isr
    )


def _activated(state: LeaderAndIsr, moving: Moving, min_isr_of: MinIsrOf) -> LeaderAndIsr:
    begun = replace(state, replicas=moving.replicas, moving=moving)
    return begun.with_min_isr(min_isr_in_force(begun, min_isr_of))


def _of_alone(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    replicas: tuple[int, ...],
    controller_epoch: int,
    min_isr: int,
) -> LeaderAndIsr:
    """These alone are replicas, and in ISR and eligible set, in a new leader epoch. Each of
    those that are in sync has every committed record, and leads without loss."""
    in_sync = [b for b in replicas if _is_in_sync(state, b, live)]
    under = state.with_min_isr(min_isr)
    isr = _of(under.isr, replicas)
    rest = replace(
        under,
        replicas=replicas,
        moving=None,
        leader=state.leader if state.leader in in_sync else in_sync[0],
        leader_epoch=state.leader_epoch + 1,
        controller_epoch=controller_epoch,
        isr=isr,
        # Who leaves is not eligible: its log is deleted.
        eligible=_of(under.eligible, replicas),
    )
    return rest.with_isr(isr)


def _of(members: Iterable[Member], replicas: Collection[int]) -> tuple[Member, ...]:
    return tuple(member for member in members if member.broker_id in replicas)
