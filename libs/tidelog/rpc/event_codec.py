"""Converts state changes to and from their wire form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidelog.state_changes.event import Cause, Kind, Stage, StateChange
from tidelog.v1 import inspect_pb2 as pb


def event_to_wire(change: StateChange) -> pb.StateChangeEvent:
    return pb.StateChangeEvent(
        time_ms=change.time_ms,
        service=change.service,
        kind=change.kind.value,
        stage=change.stage.value,
        cause=change.cause.value,
        change_id=change.change_id,
        topic=change.topic,
        topic_id=change.topic_id,
        partition=change.partition,
        broker=change.broker,
        broker_epoch=change.broker_epoch,
        controller_epoch=change.controller_epoch,
        leader_epoch=change.leader_epoch,
        revision=change.revision,
        duration_ms=change.duration_ms,
        trace_id=change.trace_id,
        details_json=json.dumps(change.details) if change.details else "",
    )


def event_from_wire(wire: pb.StateChangeEvent) -> StateChange:
    """Raises `ValueError` for a kind or stage of a newer version."""
    details: Mapping[str, Any] = json.loads(wire.details_json) if wire.details_json else {}
    return StateChange(
        wire.time_ms,
        wire.service,
        Kind(wire.kind),
        Stage(wire.stage),
        Cause.parse(wire.cause),
        wire.change_id,
        wire.topic,
        wire.topic_id,
        wire.partition,
        wire.broker,
        wire.broker_epoch,
        wire.controller_epoch,
        wire.leader_epoch,
        wire.revision,
        wire.duration_ms,
        wire.trace_id,
        details,
    )
