"""Runs `tidelog bench consume`: start, measurement, report."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from tidelog.cli.bench.bench_report import CpuMeter, note_busy, per_second, rate_text, write_rows
from tidelog.cli.bench.consume_load import ReadResult, ReadSettings, read_load
from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.output import write_json, write_note
from tidelog.cli.positions import parse_position
from tidelog.cli.progress_line import progress_shown
from tidelog.cli.record_reading import seek
from tidelog.cli.session import Session
from tidelog.errors import unknown_partition
from tidelog.model import OffsetPosition, TopicPartition
from tidelog.phrases import plural
from tidelog.units import size_text

# With --from end, if nothing says when to end.
DEFAULT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ConsumeRequest:
    """`partition`: None for all. `progress`: None to show it on a terminal."""

    topic: str
    partition: int | None
    start: str
    records: int | None
    duration_seconds: float | None
    timeout_seconds: float
    progress: bool | None


async def run_consume(session: Session, request: ConsumeRequest) -> ExitStatus:
    """Raises `TidelogError`, and `TimedOutError` if expected records do not arrive."""
    import asyncio

    try:
        start = parse_position(request.start, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--from") from error
    duration = request.duration_seconds
    if duration is None and request.records is None and start is OffsetPosition.LATEST:
        duration = DEFAULT_SECONDS
    result = ReadResult()
    interrupted = False
    async with await session.consumer(
        offsets_timeout_ms=round(request.timeout_seconds * 1000)
    ) as consumer:
        partitions = await consumer.partitions_of(request.topic)
        if request.partition is not None:
            if request.partition >= len(partitions):
                raise unknown_partition(request.topic, request.partition, len(partitions))
            partitions = [partitions[request.partition]]
        ends: Mapping[TopicPartition, int] = await consumer.end_offsets(partitions)
        await seek(consumer, partitions, start)
        settings = ReadSettings(request.records, duration, ends, request.timeout_seconds)
        meter = CpuMeter()
        async with progress_shown(_Progress(result).line, request.progress):
            try:
                await read_load(consumer, settings, result)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                assert task is not None, "this is a coroutine"
                task.uncancel()
                interrupted = True
        cpu_percent = meter.percent()
    _report(session, request, result, cpu_percent, interrupted=interrupted)
    return ExitStatus.INTERRUPTED if interrupted else ExitStatus.DONE


@dataclass(slots=True)
class _Progress:
    result: ReadResult
    before: int = 0

    def line(self, seconds: float) -> str:
        rate = per_second(self.result.records - self.before, seconds)
        self.before = self.result.records
        return f"{plural(self.before, 'record')} read, {rate:,.0f} records/s"


def _report(
    session: Session,
    request: ConsumeRequest,
    result: ReadResult,
    cpu_percent: float,
    *,
    interrupted: bool,
) -> None:
    if session.as_json:
        write_json(_document(request, result, cpu_percent, interrupted=interrupted))
        return
    write_rows(_rows(result, cpu_percent))
    if result.future_records:
        write_note(
            f"{plural(result.future_records, 'record')} seem to come from the future: the clocks "
            "of producer and consumer differ, so the end-to-end times are wrong."
        )
    note_busy(cpu_percent)
    if interrupted:
        write_note("Interrupted; the figures are of the time before.")


def _rows(result: ReadResult, cpu_percent: float) -> Iterator[tuple[str, str]]:
    yield (
        "Read",
        f"{plural(result.records, 'record')} ({size_text(result.size_bytes)}) in "
        f"{plural(result.batches, 'batch', 'batches')}, {result.seconds:.2f} s",
    )
    yield "Rate", rate_text(result.records, result.size_bytes, result.seconds)
    yield (
        "End to end",
        str(result.latencies) or "not measured: tidelog bench produce wrote nothing meanwhile",
    )
    yield "Client CPU", f"{cpu_percent:.0f} % of one core"


def _document(
    request: ConsumeRequest, result: ReadResult, cpu_percent: float, *, interrupted: bool
) -> dict[str, Any]:
    return {
        "topic": request.topic,
        "records": result.records,
        "batches": result.batches,
        "size_bytes": result.size_bytes,
        "seconds": result.seconds,
        "records_per_second": per_second(result.records, result.seconds),
        "bytes_per_second": per_second(result.size_bytes, result.seconds),
        "end_to_end_ms": result.latencies.as_document(),
        "future_records": result.future_records,
        "client_cpu_percent": cpu_percent,
        "interrupted": interrupted,
    }
