"""The kind of change that a write of a partition's key makes, and its cause. Pure functions.

Control is level-triggered: no record of the triggering event is kept. The reported cause follows
from the states before and after and from what is known of brokers, as every decision does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.model import NO_LEADER
from tidelog.state_changes.event import Cause, Change, Kind
from tidelog_controller.policies.electability import LiveBroker
from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    Departure,
    LeaderAndIsr,
    Member,
)

# Causes of the changes that stop a partition and delete its key.
DELETION_CAUSES = frozenset({Cause.TOPIC_DELETED, Cause.PARTITIONS_REMOVED})

# Prefix of the ids of changes that a controller decided; all others are brokers'.
_BY_CONTROLLER = "c"


class Circumstances(NamedTuple):
    """What the cause of a change depends on besides the two states.

    - `departed`: by broker, its last incarnation whose end a controller detected.
    - `deleting`: the partition is being deleted, with its topic unless `alone`.
    - `added`: the partition was added to its topic after the topic's creation.
    - `deposes`: the leader is live, but its followers cannot reach it.
    - `consented`: the change uses an administrator's consent.
    """

    live: Mapping[int, LiveBroker]
    departed: Mapping[int, Departure]
    deleting: bool = False
    alone: bool = False
    added: bool = False
    deposes: bool = False
    consented: bool = False


def change_id(controller_epoch: int, number: int | str) -> str:
    """`number`: unique in the controller term."""
    return f"{_BY_CONTROLLER}{controller_epoch}-{number}"


def is_by_controller(change: Change) -> bool:
    return change.id.startswith(_BY_CONTROLLER)


def kind_of(old: LeaderAndIsr | None, new: LeaderAndIsr | None, *, deleting: bool) -> Kind:
    """Returns the kind of a change.

    `old` None: the partition gets its replicas. `new` None: the key is deleted.
    """
    if new is None:
        return Kind.DELETE
    if old is None:
        return Kind.CREATE
    if deleting:
        return Kind.STOP
    if new.moving != old.moving:
        return _move_step(old, new)
    if new.leader_epoch == old.leader_epoch:
        return Kind.ISR_SHRINK if new.min_isr == old.min_isr else Kind.CONFIG_CHANGE
    if new.leader == NO_LEADER:
        return Kind.LEADER_LOST
    unclean = new.unclean_leader_epoch == new.leader_epoch
    return Kind.UNCLEAN_ELECTION if unclean else Kind.ELECTION


def cause_of(old: LeaderAndIsr | None, new: LeaderAndIsr | None, known: Circumstances) -> Cause:
    if known.deleting or new is None:
        return Cause.PARTITIONS_REMOVED if known.alone else Cause.TOPIC_DELETED
    if old is None:
        return Cause.PARTITIONS_ADDED if known.added else Cause.TOPIC_CREATED
    if new.moving != old.moving:
        cancelled = _move_step(old, new) is Kind.MOVE_CANCELLED
        return Cause.CANCELLED if cancelled else Cause.REASSIGNED
    if new.leader_epoch == old.leader_epoch:
        if new.min_isr != old.min_isr:
            return Cause.CONFIG_CHANGED
        left = [member for member in old.isr if member not in new.isr]
        return _why_gone(left[0], known) if left else Cause.NONE
    if known.deposes:
        return Cause.LEADER_UNREACHABLE
    if new.unclean_leader_epoch == new.leader_epoch:
        return Cause.CONSENT if known.consented else Cause.RECOVERY
    if old.leader == NO_LEADER:
        # A replica that can lead without loss is back.
        return Cause.BROKER_JOINED
    return _why_gone(Member(old.leader, old.leader_broker_epoch), known)


def _move_step(old: LeaderAndIsr, new: LeaderAndIsr) -> Kind:
    if new.moving is not None or old.moving is None:
        return Kind.MOVE_ACTIVATED
    return Kind.MOVE_SWITCHED if new.replicas == old.moving.target else Kind.MOVE_CANCELLED


def _why_gone(member: Member, known: Circumstances) -> Cause:
    if member.broker_epoch == NOT_WHOLE:
        return Cause.REPLICA_RESIGNED
    live = known.live.get(member.broker_id)
    if live is not None and live.broker_epoch == member.broker_epoch:
        return Cause.NONE if live.running else Cause.BROKER_STOPPING
    departed = known.departed.get(member.broker_id)
    if departed is not None and departed.broker_epoch == member.broker_epoch:
        return departed.cause
    return Cause.BROKER_GONE if live is None else Cause.BROKER_RESTARTED
