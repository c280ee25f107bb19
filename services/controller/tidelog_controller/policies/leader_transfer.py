"""Leadership transfer: another replica leads a partition whose leader serves. Pure functions.

A function of the partition's state and the live brokers. The next leader is in the ISR, so it has
every committed record. Records above the high watermark that acks=1 acknowledged are cut, as at the
end of a controlled shutdown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from tidelog.state_changes.event import Cause
from tidelog_controller.policies.electability import ElectionRules, LiveBroker, candidates
from tidelog_controller.policies.leader_election import is_leader_serving
from tidelog_runtime.metadata.schema import LeaderAndIsr


class RequestedLeader(NamedTuple):
    """The requested leader of a partition.

    - `first`: it also becomes the first of the replicas.
    - `trace_id`, `requested_by`, `requested_from`: the request's trace, caller and address;
      reported, but no decision depends on them. The same holds for `cause`.
    """

    leader: int
    first: bool
    cause: Cause
    trace_id: str = ""
    requested_by: str = ""
    requested_from: str = ""


def transfer_leadership(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    rules: ElectionRules,
    controller_epoch: int,
    wanted: RequestedLeader,
) -> LeaderAndIsr | None:
    """Returns the state to write. None: the broker leads already, or cannot lead now.

    A change of only the order takes a new leader epoch as well, because a replica identifies its
    assignment by the epoch.
    """
    replicas = state.replicas
    if wanted.first and state.moving is None:
        replicas = (wanted.leader, *(b for b in replicas if b != wanted.leader))
    if (state.leader, state.replicas) == (wanted.leader, replicas):
        return None
    if not is_leader_serving(state, live) or wanted.leader not in state.replicas:
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


def successor_of(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    rules: ElectionRules,
    maintenance: Collection[int],
) -> int | None:
    """Returns the broker to lead instead of one in maintenance.

    None: the leader is not in maintenance, or no other replica can lead.
    """
    if state.leader not in maintenance:
        return None
    able = in_sync(state, live, rules)
    return next((b for b in state.replicas if b in able and b not in maintenance), None)


def in_sync(
    state: LeaderAndIsr, live: Mapping[int, LiveBroker], rules: ElectionRules
) -> Collection[int]:
    """Members with the current incarnation of running brokers that have lost nothing."""
    able = candidates(state.isr, live, rules)
    return [member.broker_id for member in able if member in state.isr]
