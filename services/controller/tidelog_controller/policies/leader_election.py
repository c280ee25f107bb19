"""Election of a partition's leader, and its ISR, from the brokers that are live.

This is the only place of the rule. The controller calls `next_state` for every partition that an
event affects, and the model checker calls it in every state that it reaches. Pure: a function of
ids, sets and offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from tidelog.model import NO_EPOCH, NO_LEADER
from tidelog_controller.policies.electability import (
    ElectionRules,
    LiveBroker,
    candidates,
    is_running,
)
from tidelog_controller.policies.recovery import Logs, unclean_leader
from tidelog_controller.policies.unreachable_leader import may_depose, successors
from tidelog_runtime.metadata.schema import (
    LeaderAndIsr,
    Member,
    RecoveryConsent,
)

_NO_LOGS: Logs = MappingProxyType({})


def next_state(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    controller_epoch: int,
    rules: ElectionRules,
    *,
    logs: Logs = _NO_LOGS,
    consent: RecoveryConsent | None = None,
    reporters: Collection[int] = (),
    in_maintenance: Collection[int] = (),
) -> LeaderAndIsr | None:
    """Returns the state to write, or None if no change is needed or possible.

    - `logs`: what is known of replicas' logs, as they are at the exact revision of `state`.
    - `reporters`: the brokers that report the leader as unreachable, if it may be deposed for that.
    - `in_maintenance`: brokers that lead only if no other replica can.
    """
    if state.leader_epoch == NO_EPOCH:
        return _first_election(state, live, controller_epoch, in_maintenance)
    if is_leader_registered(state, live):
        handed_over = None
        if not is_running(state.leader, live):
            # If no other replica can lead, a stopping leader leads until it is gone.
            handed_over = _clean_election(state, live, controller_epoch, rules, in_maintenance)
        elif may_depose(state, live, rules, reporters):
            able = successors(state, live, rules, reporters)
            successor = _preferred(state, able, in_maintenance)
            assert successor is not None, "otherwise the leader would not be deposed"
            # Other in-sync members can reach the previous leader, and perhaps only that one.
            return state.led_by(successor.broker_id, [successor], controller_epoch)
        return handed_over or _without_departed(state, live)
    elected = _clean_election(state, live, controller_epoch, rules, in_maintenance)
    if elected is not None:
        return elected
    if state.leader != NO_LEADER:
        # The ISR stays as the last-known members, each with the incarnation in which it was
        # admitted. A member that comes back intact is elected.
        return replace(
            state,
            leader=NO_LEADER,
            leader_epoch=state.leader_epoch + 1,
            controller_epoch=controller_epoch,
        )
    leader = unclean_leader(state, live, rules, consent, logs)
    if leader is None:
        return None
    return _led_uncleanly_by(state, Member(leader, live[leader].broker_epoch), controller_epoch)


def is_leader_registered(state: LeaderAndIsr, live: Mapping[int, LiveBroker]) -> bool:
    """Whether the leader's broker runs in the incarnation to which this leader epoch was given.

    A broker of another incarnation does not lead, and neither does one that has resigned.
    """
    broker = live.get(state.leader)
    return broker is not None and broker.broker_epoch == state.leader_broker_epoch


def is_leader_serving(state: LeaderAndIsr, live: Mapping[int, LiveBroker]) -> bool:
    """Whether the leader is valid (`is_leader_registered`) and its broker is not stopping."""
    return is_leader_registered(state, live) and is_running(state.leader, live)


def _without_departed(state: LeaderAndIsr, live: Mapping[int, LiveBroker]) -> LeaderAndIsr | None:
    """Removes members whose incarnation has ended from the ISR, or returns None if there is none.

    A restarted member is removed as well: its leader adds it again. A stopping member is removed
    while it still runs, so that its end stalls no write. The leader stays until it is gone.
    """
    staying = [
        member
        for member in state.isr
        if member.broker_id in live
        and live[member.broker_id].broker_epoch == member.broker_epoch
        and (live[member.broker_id].running or member.broker_id == state.leader)
    ]
    return None if len(staying) == len(state.isr) else state.with_isr(staying)


def _first_election(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    controller_epoch: int,
    in_maintenance: Collection[int],
) -> LeaderAndIsr | None:
    """Elects the first leader. All replicas are empty, and therefore all are intact."""
    members = [Member(b, live[b].broker_epoch) for b in state.replicas if is_running(b, live)]
    leader = _preferred(state, members, in_maintenance)
    return None if leader is None else state.led_by(leader.broker_id, members, controller_epoch)


def _clean_election(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    controller_epoch: int,
    rules: ElectionRules,
    in_maintenance: Collection[int],
) -> LeaderAndIsr | None:
    """Elects from the ISR, else from the eligible set. None: no replica can lead without loss."""
    in_sync = candidates(state.isr, live, rules)
    leader = _preferred(state, in_sync, in_maintenance)
    if leader is not None:
        return state.led_by(leader.broker_id, in_sync, controller_epoch)
    leader = _preferred(state, candidates(state.eligible, live, rules), in_maintenance)
    if leader is not None:
        return state.led_by(leader.broker_id, [leader], controller_epoch)
    return None


def _preferred(
    state: LeaderAndIsr, members: Iterable[Member], in_maintenance: Collection[int]
) -> Member | None:
    """Returns the first member in the order of preference; members in maintenance come last."""
    by_id = {member.broker_id: member for member in members}
    able = [broker_id for broker_id in state.replicas if broker_id in by_id]
    return by_id[min(able, key=in_maintenance.__contains__)] if able else None


def _led_uncleanly_by(state: LeaderAndIsr, leader: Member, controller_epoch: int) -> LeaderAndIsr:
    """Elects `leader` as the only member and records the epoch as unclean (KIP-704).

    No other replica is known to hold what the new leader's log holds.
    """
    led = state.led_by(leader.broker_id, [leader], controller_epoch)
    return replace(led, eligible=(), unclean_leader_epoch=led.leader_epoch)
