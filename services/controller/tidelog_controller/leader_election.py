"""Who leads a partition, and who is in sync, given the brokers that are live.

The only place of this logic: the controller calls `next_state` for every partition
that an event touched, and the model checker calls it in every state that it reaches.
A pure function of ids and sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from tidelog.model import NO_EPOCH, NO_LEADER
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member


class LiveBroker(NamedTuple):
    """A registered broker. `whole_since` is effective: the oldest broker epoch since
    which its replicas have lost nothing, its own where the registration says 0."""

    broker_epoch: int
    running: bool
    whole_since: int


def next_state(
    state: LeaderAndIsr, live: Mapping[int, LiveBroker], controller_epoch: int
) -> LeaderAndIsr | None:
    """The state that is to be written, or None where all is well or nothing can be done."""
    if state.leader_epoch == NO_EPOCH:
        return _first_election(state, live, controller_epoch)
    if _leader_stands(state, live):
        return _without_departed(state, live)
    return _elect(state, live, controller_epoch)


def _leader_stands(state: LeaderAndIsr, live: Mapping[int, LiveBroker]) -> bool:
    """A broker leads only in epochs that were given to its present life."""
    broker = live.get(state.leader)
    return (
        broker is not None and broker.running and broker.broker_epoch == state.leader_broker_epoch
    )


def _without_departed(state: LeaderAndIsr, live: Mapping[int, LiveBroker]) -> LeaderAndIsr | None:
    """A member that restarted has left as well: its leader lets it join again."""
    staying = [
        member
        for member in state.isr
        if member.broker_id in live and live[member.broker_id].broker_epoch == member.broker_epoch
    ]
    return None if len(staying) == len(state.isr) else state.with_isr(staying)


def _first_election(
    state: LeaderAndIsr, live: Mapping[int, LiveBroker], controller_epoch: int
) -> LeaderAndIsr | None:
    """All replicas of a partition that was never led are empty, and so all are whole."""
    members = [Member(b, live[b].broker_epoch) for b in state.replicas if b in live]
    leader = _first_running(state, members, live)
    if leader is None:
        return None
    return _led_by(state, leader, members, controller_epoch)


def _elect(
    state: LeaderAndIsr, live: Mapping[int, LiveBroker], controller_epoch: int
) -> LeaderAndIsr | None:
    in_sync = _whole(state.isr, live)
    leader = _first_running(state, in_sync, live)
    if leader is not None:
        return _led_by(state, leader, in_sync, controller_epoch)
    leader = _first_running(state, _whole(state.eligible, live), live)
    if leader is not None:
        return _led_by(state, leader, [leader], controller_epoch)
    if state.leader == NO_LEADER:
        return None
    # The ISR stays as the last-known members in their former lives: whoever of them
    # comes back whole is elected.
    return replace(
        state,
        leader=NO_LEADER,
        leader_epoch=state.leader_epoch + 1,
        controller_epoch=controller_epoch,
    )


def _whole(members: Iterable[Member], live: Mapping[int, LiveBroker]) -> list[Member]:
    """Those that have lost nothing since they were admitted, in their present lives."""
    return [
        Member(member.broker_id, live[member.broker_id].broker_epoch)
        for member in members
        if member.broker_id in live and live[member.broker_id].whole_since <= member.broker_epoch
    ]


def _first_running(
    state: LeaderAndIsr, candidates: Iterable[Member], live: Mapping[int, LiveBroker]
) -> Member | None:
    """The candidate that comes first in the order of preference."""
    running = {member.broker_id: member for member in candidates if live[member.broker_id].running}
    return next((running[b] for b in state.replicas if b in running), None)


def _led_by(
    state: LeaderAndIsr, leader: Member, isr: Iterable[Member], controller_epoch: int
) -> LeaderAndIsr:
    return replace(
        state.with_isr(isr),
        leader=leader.broker_id,
        leader_epoch=state.leader_epoch + 1,
        controller_epoch=controller_epoch,
    )
