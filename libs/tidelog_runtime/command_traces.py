"""Which trace a command belongs to, for the metadata of the call beside its changes. Pure.

A command may carry the changes of many requests; which change is whose, its body says. The
metadata of the call names a trace for those who see calls alone, and no more than all changes
bear out."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.state_changes.event import Change
from tidelog_runtime.replica_control import (
    Command,
    LeaderAndIsrCommand,
    StopReplicaCommand,
)


def shared_trace_id(command: Command) -> str:
    """Of all changes that have one; empty: none has, or they differ."""
    shared = ""
    for change in _changes(command):
        if change.trace_id and shared and change.trace_id != shared:
            return ""
        shared = shared or change.trace_id
    return shared


def has_trace(command: Command) -> bool:
    """Whether any of its changes names one."""
    return any(change.trace_id for change in _changes(command))


def _changes(command: Command) -> Iterator[Change]:
    match command:
        case LeaderAndIsrCommand():
            yield command.change
            for wanted in command.partitions:
                yield wanted.state.change
        case StopReplicaCommand():
            for stop in command.partitions:
                yield stop.change
