"""`tidelog consume`: writes records of a topic to stdout."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.completion import TopicArgument
from tidelog.cli.exit_status import ExitStatus, TimedOutError
from tidelog.cli.operating.options import shared_options
from tidelog.cli.positions import AtOffset, AtTime, Position, parse_position
from tidelog.cli.record_format import RecordFormat, format_records
from tidelog.cli.session import Session, key_separator_option, seconds_option, separator_from
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import MAX_INT32, OffsetPosition, OnDamage, Record, TopicPartition

if TYPE_CHECKING:
    from tidelog.client import Consumer

# Records of one poll: enough for throughput, few enough to stop soon.
POLL_RECORDS = 500
POLL_TIMEOUT_MS = 500


@dataclass(frozen=True, slots=True)
class ConsumeRequest:
    """`timeout_ms`: the timeout of requests for offsets and, without `follow`, the longest wait for
    the next record that is known to exist."""

    topic: str
    partitions: tuple[int, ...]
    start: Position
    max_records: int | None
    follow: bool
    record_format: RecordFormat
    key_separator: bytes | None
    timeout_ms: int
    on_damage: OnDamage = OnDamage.RAISE


_FormatOption = Annotated[
    RecordFormat,
    typer.Option(
        "--format",
        help="value: one value a line; raw: only the values' bytes; json: one document a line.",
    ),
]
_FromOption = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="POSITION",
        help="beginning, end, an offset, time:2026-01-31T08:30:00Z or an age as -5m.",
    ),
]
_TimeoutOption = Annotated[
    float,
    seconds_option(
        "--timeout", "Without --follow: how long to wait for a record that is known to exist."
    ),
]
_KeySeparatorOption = Annotated[
    str | None,
    key_separator_option("Print each record's key and this before its value; \\t is a tab."),
]
_PartitionsOption = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, max=MAX_INT32, help="May be repeated. Default: all."),
]
_MaxOption = Annotated[
    int | None,
    typer.Option("--max", "-n", min=0, show_default=False, help="Stop after this many records."),
]


# Ctrl-C is the normal end of a command that follows a topic.
@shared_options(streams=True, when_interrupted=ExitStatus.DONE)
async def consume(
    session: Session,
    topic: TopicArgument,
    partition: _PartitionsOption = None,
    start: _FromOption = "beginning",
    max_records: _MaxOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records, until Ctrl-C.")
    ] = False,
    record_format: _FormatOption = RecordFormat.VALUE,
    key_separator: _KeySeparatorOption = None,
    on_damage: Annotated[
        OnDamage,
        typer.Option(
            "--on-damage",
            help="For records that are damaged on the last disk that held them: fail, or skip "
            "them with a warning.",
        ),
    ] = OnDamage.RAISE,
    timeout: _TimeoutOption = 30.0,
) -> None:
    """Print the existing records of a topic; with --follow also new ones.

    Example: tidelog consume sea --from -5m --json
    """
    try:
        position = parse_position(start, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--from") from error
    request = ConsumeRequest(
        topic,
        tuple(sorted(set(partition or ()))),
        position,
        max_records,
        follow,
        RecordFormat.JSON if session.as_json else record_format,
        separator_from(key_separator),
        round(timeout * 1000),
        on_damage,
    )
    await _consume(session, request)


async def _consume(session: Session, request: ConsumeRequest) -> None:
    async with await session.consumer(
        offsets_timeout_ms=request.timeout_ms, on_damage=request.on_damage
    ) as consumer:
        partitions = await consumer.partitions_of(request.topic)
        if request.partitions:
            partitions = [TopicPartition(request.topic, number) for number in request.partitions]
        if request.max_records == 0:
            return
        if request.follow:
            await _seek(consumer, partitions, request.start)
            if not request.partitions:
                # Keeps the positions of existing partitions, and reads partitions added later.
                await consumer.assign_topic(request.topic)
            await _write_new_records(consumer, request)
            return
        ends = await consumer.end_offsets(partitions)
        await _seek(consumer, partitions, request.start)
        await _write_up_to(consumer, ends, request)


async def _seek(consumer: Consumer, partitions: list[TopicPartition], start: Position) -> None:
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
                f"{ends[partition]}. --partition chooses a partition, --from time:… fits all",
            )


async def _write_new_records(consumer: Consumer, request: ConsumeRequest) -> None:
    written = 0
    while request.max_records is None or written < request.max_records:
        records = await consumer.poll(POLL_TIMEOUT_MS, _poll_limit(request, written))
        _write(records, request)
        written += len(records)


async def _write_up_to(
    consumer: Consumer, ends: Mapping[TopicPartition, int], request: ConsumeRequest
) -> None:
    """Writes records up to the ends that the partitions had at the start."""
    from tidelog.client.clock import SystemClock

    clock = SystemClock()
    last_record_ms = clock.monotonic_ms()
    left = _unfinished(consumer, ends, ends)
    consumer.assign(left)
    written = 0
    while left and (request.max_records is None or written < request.max_records):
        polled = await consumer.poll(POLL_TIMEOUT_MS, _poll_limit(request, written))
        records = [r for r in polled if r.offset < ends[TopicPartition(r.topic, r.partition)]]
        _write(records, request)
        written += len(records)
        if polled:
            last_record_ms = clock.monotonic_ms()
        elif clock.monotonic_ms() - last_record_ms >= request.timeout_ms:
            raise TimedOutError(_missing_text(consumer, ends, left, request.timeout_ms))
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


def _poll_limit(request: ConsumeRequest, written: int) -> int:
    if request.max_records is None:
        return POLL_RECORDS
    return min(POLL_RECORDS, request.max_records - written)


def _write(records: list[Record], request: ConsumeRequest) -> None:
    if records:
        out = sys.stdout.buffer
        out.write(format_records(records, request.record_format, request.key_separator))
        out.flush()
