"""Which trace a command belongs to, for the metadata of the call beside its changes. Pure.

A command may carry the changes of many requests; which change is whose, its body says. The
metadata of the call names a trace for those who see calls alone, and no more than all changes
bear out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from tidelog.state_changes.event import Change
from tidelog_runtime.replica_control import (
    Command,
    LeaderAndIsrCommand,
    StopReplicaCommand,
)

_Command = TypeVar("_Command", LeaderAndIsrCommand, StopReplicaCommand)


def shared_trace_id(command: Command) -> str:
    """Of all changes that have one; empty: none has, or they differ."""
    shared = ""
    for change in _changes(command):
        if change.trace_id and shared and change.trace_id != shared:
            return ""
        shared = shared or change.trace_id
    return shared


def with_trace_of_call(command: _Command, trace_id: str) -> _Command:
    """With `trace_id`, which came in the metadata, in all of its changes where none has one."""
    if not trace_id or any(change.trace_id for change in _changes(command)):
        return command
    if isinstance(command, StopReplicaCommand):
        return replace(
            command,
            partitions=[
                stop._replace(change=stop.change._replace(trace_id=trace_id))
                for stop in command.partitions
            ],
        )
    return replace(
        command,
        partitions=[
            wanted._replace(
                state=wanted.state.with_change(wanted.state.change._replace(trace_id=trace_id))
            )
            for wanted in command.partitions
        ],
        change=command.change._replace(trace_id=trace_id),
    )


def _changes(command: Command) -> Iterator[Change]:
    match command:
        case LeaderAndIsrCommand():
            yield command.change
            for wanted in command.partitions:
                yield wanted.state.change
        case StopReplicaCommand():
            for stop in command.partitions:
                yield stop.change
