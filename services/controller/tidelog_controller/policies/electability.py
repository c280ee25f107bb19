"""Which replicas can lead a partition without loss.

It follows from the state of brokers and from what a topic allows. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    LeaderAndIsr,
    Member,
)


class LiveBroker(NamedTuple):
    """A registered broker.

    - `running`: false once it is stopping.
    - `whole_since`, `synced_whole_since`: the oldest broker epoch since which its replicas (those
      of synced topics) have lost nothing. They are effective values: the broker's own epoch if its
      registration says 0.
    """

    broker_epoch: int
    running: bool
    whole_since: int
    synced_whole_since: int


class ElectionRules(NamedTuple):
    """The part of a topic's configuration that concerns elections."""

    synced: bool = False
    recovery: Literal["balanced", "manual"] = "balanced"
    unclean_leader_election: bool = False


def is_running(broker_id: int, live: Mapping[int, LiveBroker]) -> bool:
    return broker_id in live and live[broker_id].running


def is_intact(member: Member, live: Mapping[int, LiveBroker], rules: ElectionRules) -> bool:
    """Whether the member's broker is registered and has lost nothing since the member was admitted.

    Rule `losses-remembered-across-incarnations`.
    """
    broker = live.get(member.broker_id)
    if broker is None or member.broker_epoch == NOT_WHOLE:
        return False
    since = broker.synced_whole_since if rules.synced else broker.whole_since
    return since <= member.broker_epoch


def candidates(
    members: Iterable[Member], live: Mapping[int, LiveBroker], rules: ElectionRules
) -> list[Member]:
    """Returns the members that may be elected as clean, each with its current incarnation.

    A stopping broker no longer leads or counts as in sync.
    """
    return [
        Member(member.broker_id, live[member.broker_id].broker_epoch)
        for member in members
        if is_running(member.broker_id, live) and is_intact(member, live, rules)
    ]


def has_clean_candidate(
    state: LeaderAndIsr, live: Mapping[int, LiveBroker], rules: ElectionRules
) -> bool:
    return bool(candidates((*state.isr, *state.eligible), live, rules))


def last_known(state: LeaderAndIsr) -> list[int]:
    """The brokers that held every committed record when the partition last had a leader.

    In the order of preference.
    """
    members = {member.broker_id for member in (*state.isr, *state.eligible)}
    return [broker_id for broker_id in state.replicas if broker_id in members]
