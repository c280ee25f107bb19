"""Converts values of `tidelog.inspection.model`, and state changes, to and from their wire form.

Messages and values have fields of the same names, so one pair of functions converts all of them. A
unit test compares the names."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tidelog.errors import TidelogError
from tidelog.rpc.wire import error_from_wire, error_to_wire
from tidelog.state_changes.event import Cause, Kind, Stage, StateChange
from tidelog.v1 import inspect_pb2 as pb

_Message = TypeVar("_Message", bound=Message)
_Value = TypeVar("_Value")
_hints: dict[type, dict[str, Any]] = {}
_readers: dict[type, list[Callable[[Any], Any]]] = {}


def to_wire(value: object, kind: type[_Message]) -> _Message:
    """Converts a dataclass with the fields of `kind`."""
    message = kind()
    _fill(value, message)
    return message


def _fill(value: object, message: Message) -> None:
    for field in message.DESCRIPTOR.fields:
        given = getattr(value, field.name)
        if given is None:
            continue
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            if field.is_repeated:
                getattr(message, field.name).extend(given)
            else:
                setattr(message, field.name, given)
        elif field.is_repeated:
            for item in given:
                _fill(item, getattr(message, field.name).add())
        elif isinstance(given, TidelogError):
            getattr(message, field.name).CopyFrom(error_to_wire(given))
        else:
            getattr(message, field.name).SetInParent()
            _fill(given, getattr(message, field.name))


def from_wire(message: Message, kind: type[_Value]) -> _Value:
    """Returns the dataclass `kind`, whose fields are those of the message."""
    readers = _readers.get(kind)
    if readers is None:
        readers = _readers[kind] = _readers_of(message, kind)
    return kind(*[read(message) for read in readers])


def _readers_of(message: Message, kind: type) -> list[Callable[[Any], Any]]:
    """Returns the functions that read the dataclass's fields, in order. They are determined once
    for each kind, because a large cluster is described in tens of thousands of messages."""
    fields = message.DESCRIPTOR.fields_by_name
    hints = _hints_of(kind)
    return [_reader(fields[name], hints[name]) for name in hints]


def _reader(field: Any, hint: Any) -> Callable[[Any], Any]:
    name, value_of = field.name, attrgetter(field.name)
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        if field.is_repeated:
            return lambda message: tuple(value_of(message))
        if field.has_presence:
            return lambda message: value_of(message) if message.HasField(name) else None
        return value_of
    if field.is_repeated:
        item = get_args(hint)[0]
        return lambda message: tuple([from_wire(m, item) for m in value_of(message)])
    inner = _without_none(hint)
    read = error_from_wire if inner is TidelogError else partial(from_wire, kind=inner)
    return lambda message: read(value_of(message)) if message.HasField(name) else None


def _hints_of(kind: type) -> dict[str, Any]:
    if kind not in _hints:
        assert dataclasses.is_dataclass(kind)
        _hints[kind] = get_type_hints(kind)
    return _hints[kind]


def _without_none(hint: Any) -> type:
    if get_origin(hint) in (Union, UnionType):
        return cast(type, next(a for a in get_args(hint) if a is not type(None)))
    return cast(type, hint)


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
