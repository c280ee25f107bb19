"""How a partition moves to other replicas. Pure functions.

"Moving a partition" in docs/internals/protocol.md. A function of the partition's state,
the live brokers and the requested move.

A move consists of writes of the partition's key. Each is decided only by the content of the key, so
that any controller continues from any of them:

- *activation* makes the target's brokers replicas as well. Leader, epoch and ISR stay.
- *switch*, once every replica of the target is in the ISR (rule `reassignment-done-when-in-sync`:
  the leaving ones may be dead): only the target's brokers are replicas.
- *cancellation*: only the original brokers are replicas again.

Switch and cancellation take a new leader epoch even if the leader stays. A replica that left and is
assigned again has to find a newer epoch than that of its previous assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from tidelog.model import NO_LEADER
from tidelog_controller.policies.electability import LiveBroker, is_running
from tidelog_controller.policies.leader_election import is_leader_serving
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member, Moving

# The min ISR of a topic for this number of replicas.
MinIsrOf = Callable[[int], int]


class RequestedMove(NamedTuple):
    """What an operation requests for one partition.

    - `operation`: the operation's id.
    - `target`: the replicas that it is to have, in this order.
    - `cancelled`: the operation moves the partition no further.
    - `trace_id`: of the request's W3C trace context; reported, but no decision depends on it.
    """

    operation: str
    target: tuple[int, ...]
    cancelled: bool = False
    trace_id: str = ""


def next_move_step(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    controller_epoch: int,
    wanted: RequestedMove | None,
    min_isr_of: MinIsrOf,
) -> LeaderAndIsr | None:
    """Returns the state to write. None: there is nothing to do, or the move waits.

    Moves happen only while a leader serves, because elections come first. A move that has begun is
    finished even without `wanted`; only its cancellation needs it.
    """
    if not is_leader_serving(state, live):
        return None
    moving = state.moving
    if moving is None:
        if wanted is not None and _is_to_begin(state, wanted):
            moving = Moving(wanted.operation, state.replicas, wanted.target)
            return _activated(state, moving, min_isr_of)
    elif is_cancelled(moving, wanted):
        min_isr = min_isr_of(len(moving.original))
        if not missing_for_cancellation(state, live, min_isr):
            return _switched(state, live, moving.original, controller_epoch, min_isr)
    elif not missing_for_switch(state, live):
        min_isr = min_isr_of(len(moving.target))
        return _switched(state, live, moving.target, controller_epoch, min_isr)
    min_isr = min_isr_in_force(state, min_isr_of)
    # Without a leader this waits: the change would clear the eligible set.
    return None if min_isr == state.min_isr else state.with_min_isr(min_isr)


def is_step(old: LeaderAndIsr, new: LeaderAndIsr) -> bool:
    """Whether `new` follows from `old` by one of the three writes of a move, and has a leader."""
    same_topic = old.topic_id == new.topic_id
    return same_topic and old.moving != new.moving and new.leader != NO_LEADER


def is_cancelled(moving: Moving, wanted: RequestedMove | None) -> bool:
    return wanted is not None and wanted.cancelled and wanted.operation == moving.operation


def min_isr_in_force(state: LeaderAndIsr, min_isr_of: MinIsrOf) -> int:
    """The min ISR that applies now.

    During a move it is that of the smaller of original and target replicas, because the partition
    may end with either.
    """
    moving = state.moving
    sides = (moving.original, moving.target) if moving else (state.replicas,)
    return min_isr_of(min(len(side) for side in sides))


def missing_for_switch(state: LeaderAndIsr, live: Mapping[int, LiveBroker]) -> tuple[int, ...]:
    """The target replicas that are not in the ISR with the running incarnation of their broker."""
    if state.moving is None:
        return ()
    return tuple(b for b in state.moving.target if not _is_in_sync(state, b, live))


def missing_for_cancellation(
    state: LeaderAndIsr, live: Mapping[int, LiveBroker], min_isr: int
) -> tuple[int, ...]:
    """The original replicas for which a cancellation waits; empty: it waits for none.

    A cancellation deletes the replicas that it removes from the ISR. So that acknowledged records
    keep their copies, it leaves at least `min_isr` members there (the value for the original
    replicas) or removes none. If `min_isr` exceeds the number of original replicas, all of them are
    enough: no others can follow.
    """
    if state.moving is None:
        return ()
    original = state.moving.original
    staying = [b for b in original if _is_in_sync(state, b, live)]
    if staying and len(staying) >= min(min_isr, len(state.isr), len(original)):
        return ()
    return tuple(b for b in original if b not in staying)


def _is_to_begin(state: LeaderAndIsr, wanted: RequestedMove) -> bool:
    """Whether the requested move can begin.

    The target is checked because its origin is not known here; it must not be empty, since a
    partition without replicas does not exist.
    """
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


def _switched(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    replicas: tuple[int, ...],
    controller_epoch: int,
    min_isr: int,
) -> LeaderAndIsr:
    """Makes `replicas` the only ones, also in ISR and eligible set, in a new leader epoch.

    Each of them that is in sync has every committed record and leads without loss.
    """
    in_sync = [b for b in replicas if _is_in_sync(state, b, live)]
    under = state.with_min_isr(min_isr)
    isr = _restricted(under.isr, replicas)
    rest = replace(
        under,
        replicas=replicas,
        moving=None,
        leader=state.leader if state.leader in in_sync else in_sync[0],
        leader_epoch=state.leader_epoch + 1,
        controller_epoch=controller_epoch,
        isr=isr,
        # A leaving replica is not eligible: its log is deleted.
        eligible=_restricted(under.eligible, replicas),
    )
    return rest.with_isr(isr)


def _restricted(members: Iterable[Member], replicas: Collection[int]) -> tuple[Member, ...]:
    return tuple(member for member in members if member.broker_id in replicas)
