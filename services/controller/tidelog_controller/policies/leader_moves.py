"""How another replica comes to lead a partition whose leader serves. A pure function of its
state and the live brokers.

The next leader is of the ISR, so it has every committed record; what acks=1 acknowledged since
is cut, as at the end of a controlled shutdown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from tidelog.state_changes.event import Cause
from tidelog_controller.policies.electability import ElectionRules, LiveBroker, candidates
from tidelog_controller.policies.leader_election import leader_serves
from tidelog_runtime.metadata.schema import LeaderAndIsr


class WantedLeader(NamedTuple):
    """`first`: it is to become the first of the replicas, too. All after `cause` is told, and never
    decided by: the trace of the request for it, who asked and from which address."""

    leader: int
    first: bool
    cause: Cause
    trace_id: str = ""
    requested_by: str = ""
    requested_from: str = ""


def led_by_another(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    rules: ElectionRules,
    controller_epoch: int,
    wanted: WantedLeader,
) -> LeaderAndIsr | None:
    """The state that is to be written; None: it is so, or cannot be now. Its order changes in a
    new leader epoch, too: a replica knows its assignment by the epoch it came with."""
    replicas = state.replicas
    if wanted.first and state.moving is None:
        replicas = (wanted.leader, *(b for b in replicas if b != wanted.leader))
    if (state.leader, state.replicas) == (wanted.leader, replicas):
        return None
    if not leader_serves(state, live) or wanted.leader not in state.replicas:
        return None
    if wanted.leader not in in_sync(state, live, rules):
        return None
    return replace(
        state,
        replicas=replicas,
        leader=wanted.leader,
        leader_epoch=state.leader_epoch + 1,
        controller_epoch=controller_epoch,
    )


def in_place_of(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    rules: ElectionRules,
    maintenance: Collection[int],
) -> int | None:
    """Who is to lead instead of a broker in maintenance; None: it is in none, or nobody else
    can."""
    if state.leader not in maintenance:
        return None
    able = in_sync(state, live, rules)
    return next((b for b in state.replicas if b in able and b not in maintenance), None)


def in_sync(
    state: LeaderAndIsr, live: Mapping[int, LiveBroker], rules: ElectionRules
) -> Collection[int]:
    """Members in the present lives of running brokers, none of which has lost anything."""
    able = candidates(state.isr, live, rules)
    return [member.broker_id for member in able if member in state.isr]
