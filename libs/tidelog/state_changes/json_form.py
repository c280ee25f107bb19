"""State changes as JSON objects: in log lines, in `__state_changes` and in the pipeline.

A field that does not apply is left out; `time` is UTC with milliseconds."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from tidelog.model import NO_EPOCH
from tidelog.state_changes.event import (
    NO_BROKER,
    NO_PARTITION,
    NO_REVISION,
    UNKNOWN_DURATION,
    Cause,
    Kind,
    Stage,
    StateChange,
)

# The value of `event` in a log line that tells a state change.
EVENT = "state_change"

_ABSENT: Mapping[str, object] = {
    "change_id": "",
    "topic": "",
    "topic_id": "",
    "partition": NO_PARTITION,
    "broker": NO_BROKER,
    "broker_epoch": NO_REVISION,
    "controller_epoch": NO_EPOCH,
    "leader_epoch": NO_EPOCH,
    "revision": NO_REVISION,
    "duration_ms": UNKNOWN_DURATION,
    "trace_id": "",
    "details": {},
}


class NotAStateChangeError(ValueError):
    """The object is none; the message says what is missing or wrong."""


def to_fields(change: StateChange) -> dict[str, Any]:
    """Everything but time and service, in the order of `StateChange`."""
    fields: dict[str, Any] = {"kind": change.kind.value, "stage": change.stage.value}
    if change.cause is not Cause.NONE:
        fields["cause"] = change.cause.value
    for name, absent in _ABSENT.items():
        value = getattr(change, name)
        if value != absent:
            fields[name] = value
    return fields


def to_object(change: StateChange) -> dict[str, Any]:
    return {"time": format_time(change.time_ms), "service": change.service, **to_fields(change)}


def from_object(value: Mapping[str, Any]) -> StateChange:
    """Raises `NotAStateChangeError`. A kind or stage of a newer version is one."""
    try:
        fields = {name: value[name] for name in _ABSENT if name in value}
        return StateChange(
            time_ms=parse_time(value["time"]),
            service=str(value["service"]),
            kind=Kind(value["kind"]),
            stage=Stage(value["stage"]),
            cause=Cause.parse(value.get("cause", "")),
            **fields,
        )
    except KeyError as missing:
        raise NotAStateChangeError(f"a state change has a field {missing}") from missing
    except (ValueError, TypeError) as wrong:
        raise NotAStateChangeError(str(wrong)) from wrong


def format_time(time_ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Milliseconds since 1970. Raises `ValueError`."""
    moment = datetime.datetime.fromisoformat(text)
    return round(moment.timestamp() * 1000)
