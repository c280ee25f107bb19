"""The changes of one partition's key: leaders and in-sync replicas. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.state_changes.change_trace import ChangeTrace, Part
from tidelog.state_changes.event import NO_BROKER, Cause, Detail, Kind, Stage

ISR_KINDS = (Kind.ISR_SHRINK, Kind.ISR_EXPAND)


class KeyChange(NamedTuple):
    """A change that the store accepted at `done_ms`. None: not reported.

    - `brokers`: the brokers that join or leave, for an ISR change by a leader.
    - `leads_ms`: time at which the leader reported that it had taken up its role; None also if
      the change started no new leadership.
    """

    trace: ChangeTrace
    kind: Kind
    cause: Cause
    requested_ms: int
    done_ms: int
    leader_before: int | None
    leader: int | None
    isr_before: frozenset[int] | None
    isr: frozenset[int] | None
    min_isr: int | None
    brokers: frozenset[int]
    received_ms: int | None
    leads_ms: int | None


def key_changes(traces: Iterable[ChangeTrace]) -> Iterator[KeyChange]:
    """Yields the changes of one partition, in the order of `traces`."""
    for trace in traces:
        of_key = [part for part in trace.parts if part.broker == NO_BROKER]
        for part in of_key:
            done = _time_of(part, Stage.COMPLETED)
            if done is not None:
                yield _key_change(trace, part, done)


def _key_change(trace: ChangeTrace, part: Part, done_ms: int) -> KeyChange:
    details: dict[str, Detail] = {}
    for event in part.stages:
        details |= event.details
    leader = _number(details.get("leader"))
    taking = _taking_up(trace, leader)
    requested_ms = _time_of(part, Stage.REQUESTED)
    return KeyChange(
        trace,
        part.kind,
        trace.cause,
        min(trace.began_ms, done_ms) if requested_ms is None else requested_ms,
        done_ms,
        _number(details.get("leader_before")),
        leader,
        _members(details.get("isr_before")),
        _members(details.get("isr")),
        _number(details.get("min_isr")),
        _members(details.get("brokers")) or frozenset(),
        None if taking is None else _time_of(taking, Stage.RECEIVED),
        None if taking is None else _time_of(taking, Stage.COMPLETED),
    )


def _taking_up(trace: ChangeTrace, leader: int | None) -> Part | None:
    return next(
        (
            part
            for part in trace.parts
            if part.kind is Kind.BECOME_LEADER and part.broker == leader and not part.is_late
        ),
        None,
    )


def _time_of(part: Part, stage: Stage) -> int | None:
    return next((event.time_ms for event in part.stages if event.stage is stage), None)


def _number(value: Detail | None) -> int | None:
    return value if isinstance(value, int) else None


def _members(value: Detail | None) -> frozenset[int] | None:
    if not isinstance(value, list):
        return None
    return frozenset(member for member in value if isinstance(member, int))
