"""When a leader that lives is replaced, because its followers cannot reach it
(section 4 of docs/internals/protocol.md). Pure.

Below min ISR the high watermark stands still, so that the ISR and whoever is eligible hold
every committed record, and one of them can lead without loss. Nothing is gained, though,
where the partition would be below min ISR under the new leader as well: the reporters
alone have to be enough for it, so that a follower with a bad connection of its own deposes
nobody.
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
    """`reporters`: the brokers that cannot reach the leader. Those that never were in sync
    are counted too, because they follow whoever is elected; only that one has to be whole
    and to hold what is committed. Those that a move adds are not, as long as they never were:
    they may have the whole log to copy yet."""
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
    """The reporters that hold every committed record, in their present lives."""
    members = candidates((*state.isr, *state.eligible), live, rules)
    return [m for m in members if m.broker_id in reporters and m.broker_id != state.leader]
