"""Who can lead a partition without loss: what is known of brokers, and what a topic allows.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    LeaderAndIsr,
    Member,
)


class LiveBroker(NamedTuple):
    """A registered broker. `whole_since` and `synced_whole_since` are effective: the oldest
    broker epoch since which its replicas (those of synced topics) have lost nothing, its
    own where the registration says 0."""

    broker_epoch: int
    running: bool
    whole_since: int
    synced_whole_since: int


class ElectionRules(NamedTuple):
    """What a topic's configuration says of elections."""

    synced: bool = False
    recovery: Literal["balanced", "manual"] = "balanced"
    unclean_leader_election: bool = False


def is_running(broker_id: int, live: Mapping[int, LiveBroker]) -> bool:
    return broker_id in live and live[broker_id].running


def is_whole(member: Member, live: Mapping[int, LiveBroker], rules: ElectionRules) -> bool:
    """Whether it is registered and has lost nothing since it was admitted (interleaving 2
    of docs/internals/interleavings.md)."""
    broker = live.get(member.broker_id)
    if broker is None or member.broker_epoch == NOT_WHOLE:
        return False
    since = broker.synced_whole_since if rules.synced else broker.whole_since
    return since <= member.broker_epoch


def candidates(
    members: Iterable[Member], live: Mapping[int, LiveBroker], rules: ElectionRules
) -> list[Member]:
    """Those that may be elected as clean, in their present lives. A stopping broker leads
    nothing any more and is in sync with nothing."""
    return [
        Member(member.broker_id, live[member.broker_id].broker_epoch)
        for member in members
        if is_running(member.broker_id, live) and is_whole(member, live, rules)
    ]


def has_clean_candidate(
    state: LeaderAndIsr, live: Mapping[int, LiveBroker], rules: ElectionRules
) -> bool:
    return bool(candidates((*state.isr, *state.eligible), live, rules))


def last_known(state: LeaderAndIsr) -> list[int]:
    """The brokers that held every committed record when the partition was last led, in the
    order of preference."""
    members = {member.broker_id for member in (*state.isr, *state.eligible)}
    return [broker_id for broker_id in state.replicas if broker_id in members]
