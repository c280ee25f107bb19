"""The registered brokers, and what their registrations decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    RUNNING,
    BrokerRegistration,
    LeaderAndIsr,
    Member,
)


class LiveBroker(NamedTuple):
    registration: BrokerRegistration
    broker_epoch: int
    mod_revision: int


def is_awaited(
    broker_id: int, state: LeaderAndIsr, brokers: Mapping[int, LiveBroker], *, synced: bool
) -> bool:
    """Whether the controller has yet to move this partition away from a stopping broker.

    It has yet to elect another member that can lead without loss, or to remove the broker from the
    ISR of another leader (rule `controlled-shutdown-leaves-every-isr`). The state in the store
    decides, not the commands: the broker stops once all decisions that let others continue without
    it are durable.

    `synced`: whether the topic's durability is `synced`.
    """
    if state.leader == broker_id:
        others = (*state.isr, *state.eligible)
        return any(
            member.broker_id != broker_id and _can_lead(member, brokers, synced=synced)
            for member in others
        )
    return state.leader in brokers and broker_id in state.isr_ids


def _can_lead(member: Member, brokers: Mapping[int, LiveBroker], *, synced: bool) -> bool:
    live = brokers.get(member.broker_id)
    if live is None or live.registration.state != RUNNING or member.broker_epoch == NOT_WHOLE:
        return False
    registration = live.registration
    since = registration.synced_whole_since if synced else registration.whole_since
    return (since or live.broker_epoch) <= member.broker_epoch
