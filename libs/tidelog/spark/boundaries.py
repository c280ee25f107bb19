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
    return _offsets(
        options.starting,
        now,
        at_times,
        needs_record=not options.latest_if_none,
        skips_expired=not options.fail_on_data_loss,
    )


def ends(options: ReadOptions, now: ClusterNow, at_times: AtTimes) -> dict[TopicPartition, int]:
    """Returns the end offset of each partition. Raises `OptionError` for an offset that is not in
    the log."""
    return _offsets(options.ending, now, at_times)


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


def _offsets(
    boundary: Boundary,
    now: ClusterNow,
    at_times: AtTimes,
    *,
    needs_record: bool = False,
    skips_expired: bool = False,
) -> dict[TopicPartition, int]:
    partitions = partitions_of(now)
    boundary.check_named(partitions)
    found = {}
    for partition in partitions:
        state = now[partition.topic].partitions[partition.partition]
        point = boundary.of(partition)
        match point.kind:
            case PointKind.EARLIEST:
                offset = state.start
            case PointKind.LATEST:
                offset = state.end
            case PointKind.TIME:
                offset = at_times[partition]
                if offset == NO_OFFSET:
                    if needs_record:
                        raise _no_record_since(boundary, partition, point.number)
                    offset = state.end
            case PointKind.OFFSET:
                offset = max(point.number, state.start) if skips_expired else point.number
                if not state.start <= offset <= state.end:
                    raise _out_of_range(boundary, partition, offset, state)
        found[partition] = offset
    return found


def _no_record_since(boundary: Boundary, partition: TopicPartition, time_ms: int) -> OptionError:
    return OptionError(
        f"option {boundary.option}: {partition} has no record of time {time_ms} or later; give an "
        "earlier time, or set startingOffsetsByTimestampStrategy to latest to begin at the end"
    )


def _out_of_range(
    boundary: Boundary, partition: TopicPartition, offset: int, now: PartitionNow
) -> OptionError:
    return OptionError(
        f"option {boundary.option}: offset {offset} of {partition} is out of range; it must be "
        f"{now.start} to {now.end} (-2: the earliest, -1: the latest)"
    )
