"""The trace of a command, for the metadata of its call. Pure.

A command may carry the changes of many requests, and its body names the trace of each change.
The metadata of the call names a trace for observers that see only calls. It names one only if
that trace is right for every change of the command.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.state_changes.event import Change
from tidelog_runtime.replica_control import (
    Command,
    LeaderAndIsrCommand,
    StopReplicaCommand,
)


def shared_trace_id(command: Command) -> str:
    """Returns the trace id of all changes that have one; empty: none has one, or they differ."""
    shared = ""
    for change in _changes(command):
        if change.trace_id and shared and change.trace_id != shared:
            return ""
        shared = shared or change.trace_id
    return shared


def has_trace(command: Command) -> bool:
    """Returns whether at least one change of the command has a trace id."""
    return any(change.trace_id for change in _changes(command))


def _changes(command: Command) -> Iterator[Change]:
    match command:
        case LeaderAndIsrCommand():
            yield command.change
            for partition in command.partitions:
                yield partition.state.change
        case StopReplicaCommand():
            for stop in command.partitions:
                yield stop.change
