"""Converts log lines, or values of `__state_changes`, to rows. Pure.

The row of an event names the partition that it belongs to, or its topic, or neither for an
event of the cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from tidelog.model import TopicPartition
from tidelog.state_changes.event import NO_PARTITION, StateChange
from tidelog.state_changes.json_form import NotAStateChangeError
from tidelog.state_changes.log_lines import LogLines
from tidelog.state_changes.topic import from_value, value_of
from tidelog_pipeline.columns import Columns, Row, Run
from tidelog_pipeline.state_changes.core.departures import Departures
from tidelog_pipeline.state_changes.core.incarnations import ObservedPeriod
from tidelog_pipeline.state_changes.core.table_rows import (
    TableRow,
    rows_of_cluster,
    rows_of_partition,
    rows_of_topic,
)

# `is_borrowed`: an event of the whole topic, repeated for a partition. The last three columns are
# used in a row of their own: the numbers of lines that were read, that are no state changes, and
# that are truncated or wrong.
EVENTS = Columns(
    topic="string",
    partition="bigint",
    time_ms="bigint",
    kind="string",
    is_borrowed="boolean",
    raw="binary",
    lines="bigint",
    skipped="bigint",
    malformed="bigint",
)
GROUPED = Columns(topic="string", partition="bigint", raw="binary")
TABLE_ROWS = Columns(table="string", row="string")


def from_log_lines(rows: Iterator[Row]) -> Iterator[Row]:
    count = skipped = malformed = 0
    for (line,) in rows:
        read = LogLines()
        read.take((line,))
        count, skipped = count + 1, skipped + read.skipped
        malformed += read.malformed
        for change in read.events:
            yield from _rows(change)
    yield EVENTS.row(lines=count, skipped=skipped, malformed=malformed)


def from_topic_values(rows: Iterator[Row]) -> Iterator[Row]:
    count = malformed = 0
    for (value,) in rows:
        count += 1
        try:
            change = from_value(value or b"")
        except NotAStateChangeError:
            malformed += 1
            continue
        yield from _rows(change)
    yield EVENTS.row(lines=count, skipped=0, malformed=malformed)


def _rows(change: StateChange) -> Iterator[Row]:
    fields = {"time_ms": change.time_ms, "kind": change.kind.value, "raw": value_of(change)}
    place = {"topic": change.topic, "partition": change.partition if change.topic else NO_PARTITION}
    yield EVENTS.row(**place, is_borrowed=False, **fields)
    if not change.topic or change.partition != NO_PARTITION:
        return
    partitions = change.details.get("partitions")
    for partition in partitions if isinstance(partitions, list) else ():
        if isinstance(partition, int):
            place = {"topic": change.topic, "partition": partition}
            yield EVENTS.row(**place, is_borrowed=True, **fields)


def table_rows(departures: Departures, observed_period: ObservedPeriod) -> Run:
    """Returns a function that converts groups of events to rows of tables.

    Each group has to be complete. The events of one partition are held in memory at a time.
    """

    def run(rows: Iterator[Row]) -> Iterator[Row]:
        for (topic, partition), group in groupby(rows, key=lambda row: row[:2]):
            events = [from_value(row[2]) for row in group]
            name = TopicPartition(topic, partition)
            for table, row in _of_group(name, events, departures, observed_period):
                yield table, _json(row)

    return run


def _of_group(
    name: TopicPartition,
    events: Iterable[StateChange],
    departures: Departures,
    observed_period: ObservedPeriod,
) -> Iterator[TableRow]:
    if not name.topic:
        return rows_of_cluster(events)
    if name.partition == NO_PARTITION:
        return rows_of_topic(events)
    return rows_of_partition(name, events, departures, observed_period)


def _json(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)
