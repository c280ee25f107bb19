"""Formats an operation for people: its state, progress and estimated end. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.cli.output import duration_text, timestamp_text
from tidelog.phrases import plural
from tidelog.units import size_text

if TYPE_CHECKING:
    from tidelog.admin_messages import Operation, Progress


def operation_lines(operation: Operation, now_ms: int) -> Iterator[str]:
    requested = timestamp_text(operation.requested_at_ms)
    who = f" by {operation.requested_by}" if operation.requested_by else ""
    yield f"Operation  {operation.operation_id} ({operation.kind})"
    yield f"State      {state_text(operation)}"
    yield f"Request    {operation.request}"
    yield f"Requested  {requested}{who} from {operation.requested_from or 'an unknown address'}"
    yield f"Progress   {progress_text(operation.progress)}"
    if operation.has_ended:
        took = duration_text(operation.ended_at_ms - operation.requested_at_ms)
        yield f"Ended      {timestamp_text(operation.ended_at_ms)}, after {took}"
    else:
        yield f"Ends       {end_text(operation, now_ms)}"
    yield f"Trace      {operation.trace_id or '-'}"
    yield f"Revision   {operation.revision}"


def state_text(operation: Operation) -> str:
    return f"{operation.state}: {operation.reason}" if operation.reason else operation.state


def progress_text(progress: Progress) -> str:
    """
    >>> from tidelog.admin_messages import Progress
    >>> progress_text(Progress(12, 3, 2, 0, 8, 2, 0))
    '3 of 12 partitions done, 2 active; 2 of 8 replicas copied'
    """
    text = f"{progress.moves_done:,} of {plural(progress.moves, 'partition')} done"
    if progress.moves_active:
        text += f", {progress.moves_active:,} active"
    if progress.moves_dropped:
        text += f", {progress.moves_dropped:,} dropped"
    if progress.replicas_to_add:
        count = plural(progress.replicas_to_add, "replica")
        text += f"; {progress.replicas_added:,} of {count} copied"
    if progress.bytes_to_copy:
        text += f"; {size_text(progress.bytes_copied)} of {size_text(progress.bytes_to_copy)}"
    if progress.bytes_per_second:
        text += f", {size_text(progress.bytes_per_second)}/s"
    if progress.moves_unmeasured:
        text += f" (without {plural(progress.moves_unmeasured, 'partition')} of unknown size)"
    return text


def end_text(operation: Operation, now_ms: int) -> str:
    if operation.has_ended:
        return operation.state
    end_ms = operation.progress.estimated_end_ms
    if not end_ms:
        return "not known yet"
    return f"in about {duration_text(end_ms - now_ms)}, at {timestamp_text(end_ms)[:19]}Z"


def progress_line(operation: Operation, now_ms: int) -> str:
    """Returns one line for a log."""
    line = f"{timestamp_text(now_ms)} {state_text(operation)}; {progress_text(operation.progress)}"
    if not operation.has_ended and operation.progress.estimated_end_ms:
        line += f"; ends {end_text(operation, now_ms)}"
    return line
