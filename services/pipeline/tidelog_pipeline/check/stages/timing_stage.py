"""The stage that finds the longest times without a successful send.

It finds them for all partitions together, and for single ones around each nemesis event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from typing import NamedTuple

from tidelog.history import Nemesis
from tidelog.history.report import EventGaps, WriteTiming
from tidelog.history.write_gaps import NO_GAP, Window, WriteGap, longest_gaps
from tidelog.model import TopicPartition
from tidelog_pipeline.check.stages.stage_tables import GAPS, SUCCESS_TIMES, Stage
from tidelog_pipeline.columns import Row

# Number of the window that means the entire time.
ALL_TIME = -1


class PartitionGap(NamedTuple):
    """The longest gap, and its partition; None: there is no gap."""

    gap: WriteGap
    partition: TopicPartition | None


_NOWHERE = PartitionGap(NO_GAP, None)


def windows_of(events: Sequence[tuple[int, Nemesis]]) -> list[Window]:
    """Returns a window for each event, which ends with the next event."""
    times: list[int | None] = [event.time_ms for _, event in events]
    return [
        Window(event.time_ms, next_ms)
        for (_, event), next_ms in zip(events, [*times[1:], None], strict=False)
    ]


def overall_stage(windows: Sequence[Window], edges_ms: Sequence[int]) -> Stage:
    """Returns the stage for all partitions as one group.

    - `edges_ms`: ascending times of the first and the last send.
    """
    return Stage(
        SUCCESS_TIMES,
        group_by=(),
        order_by=("time_ms",),
        output=GAPS,
        run=lambda rows: gaps_overall(rows, windows, edges_ms),
    )


def partition_stage(windows: Sequence[Window]) -> Stage:
    """Returns the stage for the longest gap of each window, in any partition of a task."""
    return Stage(
        SUCCESS_TIMES,
        group_by=("topic", "partition"),
        order_by=("topic", "partition", "time_ms"),
        output=GAPS,
        run=lambda rows: gaps_of_partitions(rows, windows),
    )


def gaps_overall(
    rows: Iterator[Row], windows: Sequence[Window], edges_ms: Sequence[int]
) -> Iterator[Row]:
    times = (time for time, _ in groupby(merge(edges_ms, (row[2] for row in rows))))
    longest, around = longest_gaps(times, windows)
    for window, gap in [(ALL_TIME, longest), *enumerate(around)]:
        yield GAPS.row(window=window, begin_ms=gap.begin_ms, end_ms=gap.end_ms)


def gaps_of_partitions(rows: Iterator[Row], windows: Sequence[Window]) -> Iterator[Row]:
    worst = [_NOWHERE] * len(windows)
    for (topic, partition), of_partition in groupby(rows, key=lambda row: row[:2]):
        name = TopicPartition(topic, partition)
        _, around = longest_gaps((row[2] for row in of_partition), windows)
        worst = [
            max(before, PartitionGap(gap, name), key=_length)
            for before, gap in zip(worst, around, strict=True)
        ]
    for window, (gap, where) in enumerate(worst):
        if where is not None and gap != NO_GAP:
            yield (window, *where, *gap)


def timing_of(
    events: Sequence[tuple[int, Nemesis]], overall: Iterable[Row], worst: Iterable[Row]
) -> WriteTiming:
    """Combines the rows of the two stages."""
    everywhere = {row[0]: WriteGap(row[3], row[4]) for row in overall}
    longest_of: dict[int, PartitionGap] = {}
    for window, topic, partition, begin_ms, end_ms in worst:
        found = PartitionGap(WriteGap(begin_ms, end_ms), TopicPartition(topic, partition))
        longest_of[window] = min(longest_of.get(window, found), found, key=_worst_first)
    around = [
        EventGaps(line, event, everywhere.get(number, NO_GAP), *longest_of.get(number, _NOWHERE))
        for number, (line, event) in enumerate(events)
    ]
    return WriteTiming(everywhere.get(ALL_TIME, NO_GAP), around)


def _length(found: PartitionGap) -> int:
    return found.gap.length_ms


def _worst_first(found: PartitionGap) -> tuple[int, TopicPartition]:
    """Among equally long gaps, the one of the first partition comes first."""
    assert found.partition is not None
    return -found.gap.length_ms, found.partition
