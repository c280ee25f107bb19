"""Rows of the tables, from the events of one partition or of the cluster. Pure.

Fields that end in `_at` are milliseconds since 1970 here, and times in the tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tidelog.model import TopicPartition
from tidelog.state_changes.change_trace import ChangeTrace
from tidelog.state_changes.event import Detail, Kind, StateChange
from tidelog.state_changes.tracing import traces_of
from tidelog_pipeline.state_changes.core.availability import Interval, under_min_isr, without_leader
from tidelog_pipeline.state_changes.core.departures import Departures
from tidelog_pipeline.state_changes.core.failovers import Failover, failovers
from tidelog_pipeline.state_changes.core.incarnations import (
    Incarnation,
    ObservedPeriod,
    incarnations,
)
from tidelog_pipeline.state_changes.core.key_changes import ISR_KINDS, KeyChange

_PLACE = "topic string, partition bigint"
SCHEMAS: Mapping[str, str] = {
    "changes": f"change_id string, kind string, cause string, {_PLACE}, topic_id string, "
    "broker bigint, began_at bigint, ended_at bigint, took_ms bigint, revision bigint, "
    "leader_epoch bigint, controller_epoch bigint, service string, is_failed boolean, "
    "is_unfinished boolean, details string",
    "stages": f"change_id string, {_PLACE}, change_kind string, kind string, broker bigint, "
    "is_late boolean, stage string, cause string, service string, told_at bigint, "
    "since_requested_ms bigint, details string",
    "unfinished": f"change_id string, {_PLACE}, change_kind string, kind string, broker bigint, "
    "missing string, overtaken_by string, began_at bigint",
    "intervals": f"{_PLACE}, topic_id string, trouble string, begin_at bigint, end_at bigint, "
    "length_ms bigint, cause string, change_id string, is_open boolean",
    "observed": f"{_PLACE}, topic_id string, begin_at bigint, end_at bigint, min_isr bigint",
    "isr_changes": f"{_PLACE}, change_id string, kind string, cause string, broker bigint, "
    "joined boolean, done_at bigint",
    "elections": f"{_PLACE}, change_id string, kind string, cause string, leader_before bigint, "
    "leader bigint, done_at bigint",
    "failovers": f"{_PLACE}, change_id string, cause string, broker_lost bigint, leader bigint, "
    "began_at bigint, noticed_ms bigint, decided_ms bigint, told_ms bigint, taken_up_ms bigint, "
    "total_ms bigint, is_whole boolean",
}
_ELECTIONS = (Kind.ELECTION, Kind.UNCLEAN_ELECTION, Kind.LEADER_LOST)

TableRow = tuple[str, dict[str, Any]]


class Lines(NamedTuple):
    """Numbers of lines.

    - `skipped`: lines that are no state changes.
    - `malformed`: truncated or wrong lines.
    """

    read: int
    skipped: int
    malformed: int


def rows_of_cluster(events: Iterable[StateChange]) -> Iterator[TableRow]:
    yield from _trace_rows(traces_of(events))


def rows_of_topic(events: Iterable[StateChange]) -> Iterator[TableRow]:
    """Yields rows for events of an entire topic."""
    yield from _trace_rows(traces_of(events))


def rows_of_partition(
    name: TopicPartition,
    events: Iterable[StateChange],
    departures: Departures,
    observed_period: ObservedPeriod,
) -> Iterator[TableRow]:
    """Yields rows for one partition.

    - `events`: may include events of its topic, to derive consequences. These have no rows.
    """
    traces = [trace for trace in traces_of(events) if trace.name == name]
    if not traces:
        return
    yield from _trace_rows(traces)
    for incarnation in incarnations(traces, observed_period):
        yield from _rows_of(name, incarnation, departures)


def _rows_of(
    name: TopicPartition, partition: Incarnation, departures: Departures
) -> Iterator[TableRow]:
    place = name._asdict()
    of_topic = {**place, "topic_id": partition.topic_id}
    yield "observed", of_topic | _observed(partition)
    for interval in (*without_leader(partition, departures), *under_min_isr(partition)):
        yield "intervals", of_topic | _interval(interval)
    for change in partition.changes:
        yield from (("isr_changes", place | row) for row in _isr_rows(change))
        if change.kind in _ELECTIONS:
            yield "elections", place | _election(change)
    for failover in failovers(partition.changes, departures):
        yield "failovers", place | _failover(failover)


def _trace_rows(traces: Sequence[ChangeTrace]) -> Iterator[TableRow]:
    for trace in traces:
        yield "changes", _change(trace)
        place = {
            "change_id": trace.change_id,
            "topic": trace.headline.topic,
            "partition": trace.headline.partition,
            "change_kind": trace.headline.kind.value,
        }
        yield from (("stages", place | row) for row in _stages(trace))
        yield from (("unfinished", place | row) for row in _unfinished(trace))


def _change(trace: ChangeTrace) -> dict[str, Any]:
    event = trace.headline
    return {
        "change_id": trace.change_id,
        "kind": event.kind.value,
        "cause": trace.cause.value,
        "topic": event.topic,
        "partition": event.partition,
        "topic_id": event.topic_id,
        "broker": event.broker,
        "began_at": trace.began_ms,
        "ended_at": trace.began_ms + trace.took_ms,
        "took_ms": trace.took_ms,
        "revision": trace.revision,
        "leader_epoch": event.leader_epoch,
        "controller_epoch": event.controller_epoch,
        "service": event.service,
        "is_failed": trace.is_failed,
        "is_unfinished": bool(trace.unfinished),
        "details": _details(event.details),
    }


def _stages(trace: ChangeTrace) -> Iterator[dict[str, Any]]:
    for part in trace.parts:
        for event in part.stages:
            yield {
                "kind": part.kind.value,
                "broker": part.broker,
                "is_late": part.is_late,
                "stage": event.stage.value,
                "cause": event.cause.value,
                "service": event.service,
                "told_at": event.time_ms,
                "since_requested_ms": trace.since_requested_ms(event),
                "details": _details(event.details),
            }


def _unfinished(trace: ChangeTrace) -> Iterator[dict[str, Any]]:
    for gap in trace.gaps:
        yield {
            "kind": gap.kind.value,
            "broker": gap.broker,
            "missing": gap.missing.value,
            "overtaken_by": gap.overtaken_by,
            "began_at": trace.began_ms,
        }


def _observed(partition: Incarnation) -> dict[str, Any]:
    """Without `min_isr`, it is unknown whether the partition was under it."""
    min_isr = [change.min_isr for change in partition.changes if change.min_isr is not None]
    return {
        "begin_at": partition.begin_ms,
        "end_at": partition.end_ms,
        "min_isr": min_isr[-1] if min_isr else None,
    }


def _interval(interval: Interval) -> dict[str, Any]:
    return {
        "trouble": interval.trouble.value,
        "begin_at": interval.begin_ms,
        "end_at": interval.end_ms,
        "length_ms": interval.end_ms - interval.begin_ms,
        "cause": interval.cause.value,
        "change_id": interval.change_id,
        "is_open": interval.is_open,
    }


def _isr_rows(change: KeyChange) -> Iterator[dict[str, Any]]:
    joined, left = _joined_and_left(change)
    for broker in sorted(joined | left):
        yield {
            "change_id": change.trace.change_id,
            "kind": change.kind.value,
            "cause": change.cause.value,
            "broker": broker,
            "joined": broker in joined,
            "done_at": change.done_ms,
        }


def _joined_and_left(change: KeyChange) -> tuple[frozenset[int], frozenset[int]]:
    none: frozenset[int] = frozenset()
    if change.kind in ISR_KINDS:
        # An ISR change by a leader names the brokers that it concerns, not the previous ISR.
        is_expansion = change.kind is Kind.ISR_EXPAND
        return (change.brokers, none) if is_expansion else (none, change.brokers)
    if change.isr is None or change.isr_before is None:
        return none, none
    return change.isr - change.isr_before, change.isr_before - change.isr


def _election(change: KeyChange) -> dict[str, Any]:
    return {
        "change_id": change.trace.change_id,
        "kind": change.kind.value,
        "cause": change.cause.value,
        "leader_before": change.leader_before,
        "leader": change.leader,
        "done_at": change.done_ms,
    }


def _failover(failover: Failover) -> dict[str, Any]:
    return {
        "change_id": failover.change.trace.change_id,
        "cause": failover.change.cause.value,
        "broker_lost": failover.broker_lost,
        "leader": failover.change.leader,
        "began_at": failover.began_ms,
        "noticed_ms": failover.noticed_ms,
        "decided_ms": failover.decided_ms,
        "told_ms": failover.received_ms,
        "taken_up_ms": failover.taken_up_ms,
        "total_ms": failover.total_ms,
        "is_whole": failover.is_complete,
    }


def _details(details: Mapping[str, Detail]) -> str:
    return json.dumps(details, ensure_ascii=False) if details else ""
