"""When a live leader is deposed because its followers cannot reach it. Pure functions.

Rule `cut-off-leader-is-replaced`. Below min ISR the high watermark does not advance, so that
every member of the ISR and of the eligible set holds every committed record. One of them can lead
without loss. A deposition gains nothing if the partition is below min ISR under the new leader as
well. So the reporters alone have to reach min ISR: a follower with a bad connection of its own
deposes no leader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidelog.model import NO_LEADER
from tidelog_controller.policies.electability import (
    ElectionRules,
    LiveBroker,
    candidates,
    is_running,
)
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member


def may_depose(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    rules: ElectionRules,
    reporters: Collection[int],
) -> bool:
    """Whether the leader is replaced because `reporters` cannot reach it.

    Reporters that were never in sync count too, because they follow the next leader; only the next
    leader itself has to be intact and to hold every committed record. Replicas that a move adds do
    not count until they have been in sync: they may still have the whole log to copy.
    """
    if state.leader == NO_LEADER or len(state.isr) >= state.min_isr:
        return False
    known = {member.broker_id for member in (*state.isr, *state.eligible)}
    followers = [
        b
        for b in state.replicas
        if b in reporters and b != state.leader and is_running(b, live)
        if b in known or b not in state.adding
    ]
    return len(followers) >= state.min_isr and bool(successors(state, live, rules, reporters))


def successors(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    rules: ElectionRules,
    reporters: Collection[int],
) -> list[Member]:
    """Returns the reporters that hold every committed record, each with its current incarnation."""
    members = candidates((*state.isr, *state.eligible), live, rules)
    return [m for m in members if m.broker_id in reporters and m.broker_id != state.leader]
