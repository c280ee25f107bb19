"""The first and last offsets to read. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.model import NO_OFFSET, TopicPartition
from tidelog.spark.data_loss import ClusterNow, PartitionNow
from tidelog.spark.option_values import OptionError
from tidelog.spark.options import Boundary, PointKind, ReadOptions

# Offsets found by time. NO_OFFSET if no record has this time or a later one.
AtTimes = Mapping[TopicPartition, int]


def partitions_of(now: ClusterNow) -> list[TopicPartition]:
    return [
        TopicPartition(topic, partition)
        for topic, state in sorted(now.items())
        for partition in sorted(state.partitions)
    ]


def requested_times(
    boundary: Boundary, partitions: Iterable[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    """Returns the partitions by the time (milliseconds since 1970, UTC) to look up in them. Raises
    `OptionError` for a partition that the boundary does not name."""
    by_time: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        point = boundary.of(partition)
        if point.kind is PointKind.TIME:
            by_time.setdefault(point.number, []).append(partition)
    return by_time


def starts(options: ReadOptions, now: ClusterNow, at_times: AtTimes) -> dict[TopicPartition, int]:
    """Returns the first offset of each partition. Raises `OptionError` for an offset that is not in
    the log, and for a time that is later than all records."""
    partitions = partitions_of(now)
    options.starting.check_named(partitions)
    return {
        p: _start(options, p, now[p.topic].partitions[p.partition], at_times) for p in partitions
    }


def ends(options: ReadOptions, now: ClusterNow, at_times: AtTimes) -> dict[TopicPartition, int]:
    """Returns the end offset of each partition. Raises `OptionError` for an offset that is not in
    the log."""
    partitions = partitions_of(now)
    options.ending.check_named(partitions)
    return {p: _end(options, p, now[p.topic].partitions[p.partition], at_times) for p in partitions}


def check_order(
    options: ReadOptions, first: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> None:
    """Raises `OptionError` if the end lies before the start. For boundaries by time that means an
    empty range instead."""
    by_time = PointKind.TIME
    for partition, offset in first.items():
        points = (options.starting.of(partition), options.ending.of(partition))
        if offset > end[partition] and by_time not in (points[0].kind, points[1].kind):
            raise OptionError(
                f"{partition} is to be read from offset {offset} ({options.starting.option}) to "
                f"{end[partition]} ({options.ending.option}); the end must not lie before the start"
            )


def _start(
    options: ReadOptions, partition: TopicPartition, now: PartitionNow, at_times: AtTimes
) -> int:
    point = options.starting.of(partition)
    match point.kind:
        case PointKind.EARLIEST:
            return now.start
        case PointKind.LATEST:
            return now.end
        case PointKind.TIME:
            if at_times[partition] != NO_OFFSET:
                return at_times[partition]
            if options.latest_if_none:
                return now.end
            raise OptionError(
                f"option {options.starting.option}: no record of {partition} is as young as "
                f"{point.number}; give an earlier time, or set startingOffsetsByTimestampStrategy "
                "to latest to begin at the end"
            )
        case PointKind.OFFSET:
            if now.start <= point.number <= now.end:
                return point.number
            if point.number < now.start and not options.fail_on_data_loss:
                return now.start
            raise _out_of_range(options.starting, partition, point.number, now)


def _end(
    options: ReadOptions, partition: TopicPartition, now: PartitionNow, at_times: AtTimes
) -> int:
    point = options.ending.of(partition)
    match point.kind:
        case PointKind.EARLIEST:
            return now.start
        case PointKind.LATEST:
            return now.end
        case PointKind.TIME:
            return now.end if at_times[partition] == NO_OFFSET else at_times[partition]
        case PointKind.OFFSET:
            if now.start <= point.number <= now.end:
                return point.number
            raise _out_of_range(options.ending, partition, point.number, now)


def _out_of_range(
    boundary: Boundary, partition: TopicPartition, offset: int, now: PartitionNow
) -> OptionError:
    return OptionError(
        f"option {boundary.option}: offset {offset} of {partition} is out of range; it must be "
        f"{now.start} to {now.end} (-2: the earliest, -1: the latest)"
    )
