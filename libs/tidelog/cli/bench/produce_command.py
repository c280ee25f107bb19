"""Runs `tidelog bench produce`: confirmation, load, report."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog.cli.bench.bench_report import CpuMeter, note_busy, per_second, rate_text, write_rows
from tidelog.cli.bench.payload import Payload
from tidelog.cli.bench.produce_load import LoadResult, LoadSettings, ProduceLoad
from tidelog.cli.exit_status import ConfirmationRequiredError, ExitStatus, UsageError, status_of
from tidelog.cli.operating.consent import confirms, declined
from tidelog.cli.output import write_error, write_json, write_note
from tidelog.cli.progress_line import progress_shown
from tidelog.cli.session import Session
from tidelog.errors import unknown_partition
from tidelog.model import Acks
from tidelog.phrases import plural
from tidelog.record_limits import HIGHEST_MAX_BATCH_BYTES
from tidelog.units import size_text

if TYPE_CHECKING:
    from tidelog.client import Producer

# A rate is missed if less than this share of it was reached.
_REACHED = 0.95


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """`settings`: arguments of `Producer`. `progress`: None to show it on a terminal."""

    load: LoadSettings
    keys: int
    seed: int
    settings: dict[str, Any]
    yes: bool
    progress: bool | None


async def run_produce(session: Session, request: LoadRequest) -> ExitStatus:
    """Raises `TidelogError`, and `ConfirmationRequiredError` for a topic with records."""
    load = request.load
    held = await _held_records(session, load)
    if held and not request.yes:
        danger = (
            f"topic {load.topic!r} holds {plural(held, 'record')}, and would keep the records of "
            "the load besides"
        )
        if not session.can_prompt():
            raise ConfirmationRequiredError(
                f"{danger}; create a topic for loads, or give --yes to write to this one"
            )
        if not confirms([f"{danger[0].upper()}{danger[1:]}."]):
            return declined(session, "Nothing was written.")
    result = LoadResult()
    payload = Payload(load.record_bytes, request.keys, random.Random(request.seed))
    meter = CpuMeter()
    async with await _producer(session, request) as producer:
        running = ProduceLoad(producer, load, payload, result)
        async with progress_shown(_Progress(result).line, request.progress):
            interrupted = await _run(running)
    _report(session, request, result, meter.percent(), interrupted=interrupted)
    if interrupted:
        return ExitStatus.INTERRUPTED
    return ExitStatus.DONE if result.first_error is None else status_of(result.first_error)


async def _held_records(session: Session, load: LoadSettings) -> int:
    """Returns the records between the start and the end of the partitions' logs. Raises
    `TidelogError` for an unknown topic or partition."""
    async with await session.consumer() as consumer:
        partitions = await consumer.partitions_of(load.topic)
        if load.partition is not None and load.partition >= len(partitions):
            raise unknown_partition(load.topic, load.partition, len(partitions))
        beginnings = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
    return sum(max(0, end - beginnings[partition]) for partition, end in ends.items())


async def _producer(session: Session, request: LoadRequest) -> Producer:
    try:
        return await session.producer(max_request_bytes=HIGHEST_MAX_BATCH_BYTES, **request.settings)
    except ValueError as error:
        raise UsageError(str(error)) from error


async def _run(load: ProduceLoad) -> bool:
    """Returns True if Ctrl-C ended the load. What was sent until then is waited for; a second
    Ctrl-C ends that, too."""
    import asyncio

    try:
        await load.run()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None, "this is a coroutine"
        task.uncancel()
        await load.finish()
        return True
    return False


@dataclass(slots=True)
class _Progress:
    result: LoadResult
    before: int = 0

    def line(self, seconds: float) -> str:
        result = self.result
        rate = per_second(result.acknowledged - self.before, seconds)
        self.before = result.acknowledged
        failed = f", {result.failed:,} failed" if result.failed else ""
        return (
            f"{plural(result.acknowledged, 'record')} acknowledged, {rate:,.0f} records/s, "
            f"{result.in_flight:,} in flight{failed}"
        )


def _report(
    session: Session,
    request: LoadRequest,
    result: LoadResult,
    cpu_percent: float,
    *,
    interrupted: bool,
) -> None:
    if result.first_error is not None:
        kinds = ", ".join(f"{count:,} × {kind}" for kind, count in result.errors.most_common())
        write_error(
            f"{plural(result.failed, 'record')} not delivered, or not known to be ({kinds}); the "
            f"first: {result.first_error}"
        )
    if session.as_json:
        write_json(_document(request, result, cpu_percent, interrupted=interrupted))
        return
    write_rows(_rows(request, result, cpu_percent))
    rate = request.load.rate
    if rate is not None and per_second(result.acknowledged, result.seconds) < _REACHED * rate:
        write_note(f"The requested rate of {rate:,.0f} records/s was not reached.")
    note_busy(cpu_percent)
    if interrupted:
        write_note("Interrupted; the figures are of the time before.")


def _rows(
    request: LoadRequest, result: LoadResult, cpu_percent: float
) -> Iterator[tuple[str, str]]:
    is_acknowledged = request.settings["acks"] is not Acks.NONE
    done = "Acknowledged" if is_acknowledged else "Sent"
    yield (
        done,
        f"{plural(result.acknowledged, 'record')} ({size_text(result.acknowledged_bytes)}) in "
        f"{result.seconds:.2f} s",
    )
    yield "Failed", f"{result.failed:,}"
    yield "Rate", rate_text(result.acknowledged, result.acknowledged_bytes, result.seconds)
    latency = str(result.latencies) or "no record was acknowledged"
    yield "Latency", latency if is_acknowledged else f"{latency} (until sent: --acks 0)"
    yield "Client CPU", f"{cpu_percent:.0f} % of one core"


def _document(
    request: LoadRequest, result: LoadResult, cpu_percent: float, *, interrupted: bool
) -> dict[str, Any]:
    return {
        "topic": request.load.topic,
        "sent": result.sent,
        "acknowledged": result.acknowledged,
        "failed": result.failed,
        "errors": dict(result.errors),
        "acknowledged_bytes": result.acknowledged_bytes,
        "seconds": result.seconds,
        "records_per_second": per_second(result.acknowledged, result.seconds),
        "bytes_per_second": per_second(result.acknowledged_bytes, result.seconds),
        "requested_records_per_second": request.load.rate,
        "latency_ms": result.latencies.as_document(),
        "client_cpu_percent": cpu_percent,
        "interrupted": interrupted,
    }
