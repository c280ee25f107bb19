"""Events about brokers: joins, departures, and observations in between."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.state_changes.event import (
    NO_CHANGE,
    NO_REVISION,
    Cause,
    Change,
    Detail,
    Kind,
    Stage,
)
from tidelog_controller.state.commands import EmitEvent
from tidelog_controller.state.metadata_records import Broker
from tidelog_runtime.broker_reports import UnreachableLeader


def broker_event(
    kind: Kind,
    broker: Broker,
    revision: int = NO_REVISION,
    cause: Cause | None = None,
    details: Mapping[str, Detail] | None = None,
    stage: Stage = Stage.COMPLETED,
    change: Change = NO_CHANGE,
) -> EmitEvent:
    registration = broker.registration
    about: dict[str, Detail] = {"address": registration.address}
    if kind is Kind.BROKER_JOINED:
        about |= {"rack": registration.rack, "whole_since": registration.whole_since}
    return EmitEvent(
        kind,
        stage,
        change,
        broker=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        revision=revision,
        details={**about, **(details or {})},
        cause=cause,
    )


def fencing_event(broker: Broker, dial: str, detection_ms: int, wall_ms: int) -> EmitEvent:
    """Returns the event that a registration's removal is requested; its change has no id yet."""
    return EmitEvent(
        Kind.BROKER_FENCED,
        Stage.REQUESTED,
        Change("", Cause.BROKER_CRASHED, wall_ms - detection_ms),
        broker=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        details={"dial": dial, "detection_ms": detection_ms},
    )


def unreachable_leader_event(leader: UnreachableLeader, follower: int) -> EmitEvent:
    return EmitEvent(
        Kind.LEADER_UNREACHABLE,
        Stage.COMPLETED,
        leader.change,
        broker=leader.broker_id,
        broker_epoch=leader.broker_epoch,
        cause=Cause.NO_ANSWER,
        details={"follower": follower, "unanswered_ms": leader.unanswered_ms},
    )
