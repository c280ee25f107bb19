"""Texts that describe operations in a report."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.history.anomalies import Reference
from tidelog.history.client_operations import NO_BROKER, Outcome, Send
from tidelog.model import NO_EPOCH, NO_OFFSET


class PollSource(NamedTuple):
    """The poll that returned a record; all records of a poll share one object."""

    line: int
    time_ms: int
    client: str
    final: bool


class Sighting(NamedTuple):
    """A poll returned a value at this offset."""

    offset: int
    leader_epoch: int
    poll: PollSource


def send_reference(send: Send) -> Reference:
    invoked = f"{send.client} sent value {send.value} (line {send.invoked_line})"
    if not send.ended_line:
        return Reference(send.invoked_line, send.invoked_ms, f"{invoked}: never ended")
    where = "" if send.offset == NO_OFFSET else f" at offset {send.offset}"
    return Reference(
        send.ended_line,
        send.ended_ms,
        f"{invoked}: {send.outcome.value}{where}{_by_whom(send)}",
    )


def _by_whom(send: Send) -> str:
    parts = []
    if send.leader_epoch != NO_EPOCH:
        parts.append(f"leader epoch {send.leader_epoch}")
    if send.broker_id != NO_BROKER:
        parts.append(f"broker {send.broker_id}")
    if send.outcome is Outcome.OK and send.offset == NO_OFFSET:
        parts.append("offset unknown")
    return f", {', '.join(parts)}" if parts else ""


def sighting_reference(value: int, sighting: Sighting) -> Reference:
    poll = sighting.poll
    epoch = "" if sighting.leader_epoch == NO_EPOCH else f", leader epoch {sighting.leader_epoch}"
    drain = " (final)" if poll.final else ""
    return Reference(
        poll.line,
        poll.time_ms,
        f"{poll.client} polled{drain} value {value} at offset {sighting.offset}{epoch}",
    )
