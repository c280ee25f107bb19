"""Reads the records between two positions of a topic, for `consume`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.cli.exit_status import TimedOutError
from tidelog.cli.positions import AtOffset, AtTime, Position
from tidelog.cli.record_output import RecordOutput
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import OffsetPosition, TopicPartition

if TYPE_CHECKING:
    from tidelog.client import Consumer

POLL_TIMEOUT_MS = 500


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What to read.

    - `partitions`: empty for all.
    - `key`: if not None, only the partition that the default partitioner chooses for it.
    - `until_ms`: where to end in each partition, at the first record at or after this time; None:
      at the end that the log has at the start.
    - `timeout_ms`: without `follow`, the longest wait for the next record that is known to exist.
    """

    topic: str
    partitions: tuple[int, ...]
    start: Position
    follow: bool
    timeout_ms: int
    key: bytes | None = None
    until_ms: int | None = None


async def read(consumer: Consumer, request: ReadRequest, output: RecordOutput) -> None:
    """Raises `TidelogError` and `TimedOutError`."""
    partitions = await _chosen(consumer, request)
    if output.is_full:
        return
    if request.follow:
        await seek(consumer, partitions, request.start)
        if not request.partitions and request.key is None:
            # Keeps the positions of existing partitions, and reads partitions added later.
            await consumer.assign_topic(request.topic)
        while not output.is_full:
            output.write(await consumer.poll(POLL_TIMEOUT_MS, output.poll_limit))
        return
    ends = await _ends(consumer, partitions, request.until_ms)
    await seek(consumer, partitions, request.start)
    await _read_up_to(consumer, ends, output, request.timeout_ms)


async def _chosen(consumer: Consumer, request: ReadRequest) -> list[TopicPartition]:
    from tidelog.client.partitioner import partition_for_key

    # Raises an error for an unknown topic.
    every = await consumer.partitions_of(request.topic)
    if request.key is not None:
        return [every[partition_for_key(request.key, len(every))]]
    if request.partitions:
        return [TopicPartition(request.topic, number) for number in request.partitions]
    return every


async def _ends(
    consumer: Consumer, partitions: list[TopicPartition], until_ms: int | None
) -> dict[TopicPartition, int]:
    ends = await consumer.end_offsets(partitions)
    if until_ms is None:
        return ends
    # Found second, so it may lie behind an end.
    reached = await consumer.offsets_at_time(until_ms, partitions)
    return {partition: min(end, reached[partition]) for partition, end in ends.items()}


async def seek(consumer: Consumer, partitions: list[TopicPartition], start: Position) -> None:
    match start:
        case OffsetPosition.EARLIEST:
            consumer.assign(partitions)
            await consumer.seek_to_beginning()
        case OffsetPosition.LATEST:
            consumer.assign(partitions, start=OffsetPosition.LATEST)
            await consumer.seek_to_end()
        case AtOffset(offset):
            beginnings = await consumer.beginning_offsets(partitions)
            check_offset(offset, beginnings, await consumer.end_offsets(partitions))
            consumer.assign(partitions)
            for partition in partitions:
                await consumer.seek(partition, offset)
        case AtTime(timestamp_ms):
            consumer.assign(partitions, start=OffsetPosition.LATEST)
            await consumer.seek_to_time(timestamp_ms)


def check_offset(
    offset: int,
    beginnings: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> None:
    """Raises `TidelogError` (OFFSET_OUT_OF_RANGE) if a partition does not have the offset. Its end
    is allowed as a start, though it has no record yet."""
    for partition, beginning in beginnings.items():
        if not beginning <= offset <= ends[partition]:
            raise TidelogError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition} has no offset {offset}; it begins at {beginning} and ends before "
                f"{ends[partition]}. --partition chooses a partition, --since fits all",
            )


async def _read_up_to(
    consumer: Consumer,
    ends: Mapping[TopicPartition, int],
    output: RecordOutput,
    timeout_ms: int,
) -> None:
    """Writes records below `ends`."""
    from tidelog.client.clock import SystemClock

    clock = SystemClock()
    last_record_ms = clock.monotonic_ms()
    left = _unfinished(consumer, ends, ends)
    consumer.assign(left)
    while left and not output.is_full:
        polled = await consumer.poll(POLL_TIMEOUT_MS, output.poll_limit)
        output.write([r for r in polled if r.offset < ends[TopicPartition(r.topic, r.partition)]])
        if polled:
            last_record_ms = clock.monotonic_ms()
        elif clock.monotonic_ms() - last_record_ms >= timeout_ms:
            raise TimedOutError(_missing_text(consumer, ends, left, timeout_ms))
        still_left = _unfinished(consumer, left, ends)
        if len(still_left) < len(left):
            # Records after the ends of finished partitions are not read.
            left = still_left
            consumer.assign(left)


def _unfinished(
    consumer: Consumer,
    partitions: Iterable[TopicPartition],
    ends: Mapping[TopicPartition, int],
) -> list[TopicPartition]:
    return [p for p in partitions if (consumer.position(p) or 0) < ends[p]]


def _missing_text(
    consumer: Consumer,
    ends: Mapping[TopicPartition, int],
    left: Iterable[TopicPartition],
    timeout_ms: int,
) -> str:
    missing = ", ".join(f"{p} from {consumer.position(p)} to {ends[p] - 1}" for p in left)
    return (
        f"no record within {timeout_ms / 1000:g} s, though there are more ({missing}); "
        "tidelog topics describe shows whether they have a leader; a longer --timeout waits longer"
    )
