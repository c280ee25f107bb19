"""State changes as JSON objects: in log lines, in `__state_changes` and in the pipeline.

A field that does not apply is omitted. `time` is UTC with milliseconds."""

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

# The value of `event` in a log line with a state change.
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
    """The object is no state change. The message says what is missing or wrong."""


def to_fields(change: StateChange) -> dict[str, Any]:
    """Returns all fields but time and service, in the order of `StateChange`."""
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
    """Raises `NotAStateChangeError`, also for a kind or stage of a newer version."""
    fields = {name: _checked(name, value[name]) for name in _ABSENT if name in value}
    try:
        return StateChange(
            time_ms=parse_time(_text("time", value["time"])),
            service=_text("service", value["service"]),
            kind=Kind(value["kind"]),
            stage=Stage(value["stage"]),
            cause=Cause.parse(_text("cause", value.get("cause", ""))),
            **fields,
        )
    except KeyError as missing:
        raise NotAStateChangeError(f"a state change has a field {missing}") from missing
    except (ValueError, OverflowError) as wrong:
        raise NotAStateChangeError(str(wrong)) from wrong


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise NotAStateChangeError(f"{name} is {value!r}; a text is expected")
    return value


def _checked(name: str, value: object) -> Any:
    """Checks that a value has the type of the field's absent value. JSON's true is no number."""
    absent = _ABSENT[name]
    if isinstance(absent, str):
        return _text(name, value)
    if isinstance(absent, int):
        if type(value) is not int:
            raise NotAStateChangeError(f"{name} is {value!r}; a whole number is expected")
        return value
    if not isinstance(value, dict) or not all(map(_is_detail, value.values())):
        raise NotAStateChangeError(
            f"{name} is {value!r}; an object of texts, whole numbers, yes or no, and lists of "
            "texts or of whole numbers is expected"
        )
    return value


def _is_detail(value: object) -> bool:
    if isinstance(value, list):
        return all(type(item) is str for item in value) or all(type(item) is int for item in value)
    return isinstance(value, str | int)


def format_time(time_ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Returns milliseconds since 1970. Raises `ValueError`."""
    moment = datetime.datetime.fromisoformat(text)
    return round(moment.timestamp() * 1000)
