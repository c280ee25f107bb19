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
from tidelog_controller.state.commands import Tell
from tidelog_controller.state.known import Broker
from tidelog_runtime.broker_reports import UnreachableLeader


def of_broker(
    kind: Kind,
    broker: Broker,
    revision: int = NO_REVISION,
    cause: Cause | None = None,
    details: Mapping[str, Detail] | None = None,
    stage: Stage = Stage.COMPLETED,
    change: Change = NO_CHANGE,
) -> Tell:
    registration = broker.registration
    about: dict[str, Detail] = {"address": registration.address}
    if kind is Kind.BROKER_JOINED:
        about |= {"rack": registration.rack, "whole_since": registration.whole_since}
    return Tell(
        kind,
        stage,
        change,
        broker=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        revision=revision,
        details={**about, **(details or {})},
        cause=cause,
    )


def of_fencing(broker: Broker, dial: str, detection_ms: int, wall_ms: int) -> Tell:
    """Returns the event that a registration's removal is requested; its change has no id yet."""
    return Tell(
        Kind.BROKER_FENCED,
        Stage.REQUESTED,
        Change("", Cause.BROKER_CRASHED, wall_ms - detection_ms),
        broker=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        details={"dial": dial, "detection_ms": detection_ms},
    )


def of_unreachable_leader(leader: UnreachableLeader, follower: int) -> Tell:
    return Tell(
        Kind.LEADER_UNREACHABLE,
        Stage.COMPLETED,
        leader.change,
        broker=leader.broker_id,
        broker_epoch=leader.broker_epoch,
        cause=Cause.NO_ANSWER,
        details={"follower": follower, "unanswered_ms": leader.unanswered_ms},
    )
