"""Consumes a topic as fast as possible, and measures how old the records of a running load are."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidelog.cli.bench.latencies import Latencies
from tidelog.cli.bench.payload import due_ns_of
from tidelog.cli.exit_status import TimedOutError
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.model import TopicPartition

# How long a poll waits: the end of the measurement is noticed this late.
POLL_TIMEOUT_MS = 100


class LoadConsumer(Protocol):
    """The part of `tidelog.client.Consumer` that is used here."""

    async def poll_batches(self, timeout_ms: int) -> list[FetchedBatch]: ...

    def position(self, partition: TopicPartition) -> int | None: ...


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """A measurement ends with the first of these.

    - `records`: so many records were read.
    - `duration_seconds`: this time is over.
    - `ends`: every partition was read up to its offset here.
    - `timeout_seconds`: with `records` or `ends`: the longest wait for the next record.
    """

    records: int | None
    duration_seconds: float | None
    ends: Mapping[TopicPartition, int]
    timeout_seconds: float


@dataclass(slots=True)
class ReadResult:
    """What was read.

    - `seconds`: until the last record, or for the stated duration.
    - `latencies`: from when a record of `bench produce` was due until it was read, of records that
      were due after the start.
    - `future_records`: records that were due after they were read: the clocks differ.
    """

    records: int = 0
    size_bytes: int = 0
    batches: int = 0
    seconds: float = 0.0
    future_records: int = 0
    latencies: Latencies = field(default_factory=Latencies)


async def read_load(
    consumer: LoadConsumer,
    settings: ReadSettings,
    result: ReadResult,
    now: Callable[[], float] = time.perf_counter,
    wall_ns: Callable[[], int] = time.time_ns,
) -> None:
    """Reads batches into `result`. Raises `TidelogError`, and `TimedOutError` if expected records
    do not arrive."""
    begin = last = now()
    begin_ns = wall_ns()
    try:
        while not _is_over(consumer, settings, result, now() - begin):
            batches = await consumer.poll_batches(POLL_TIMEOUT_MS)
            read_ns = wall_ns()
            if batches:
                last = now()
            elif settings.duration_seconds is None and now() - last >= settings.timeout_seconds:
                raise TimedOutError(
                    f"no record within {settings.timeout_seconds:g} s after {result.records:,} "
                    "records; a longer --timeout waits longer, and --duration ends by time"
                )
            for batch in batches:
                _count(batch, result, begin_ns, read_ns)
    finally:
        ended = now() if settings.duration_seconds is not None else last
        result.seconds = ended - begin


def _is_over(
    consumer: LoadConsumer, settings: ReadSettings, result: ReadResult, elapsed: float
) -> bool:
    if settings.records is not None and result.records >= settings.records:
        return True
    if settings.duration_seconds is not None:
        return elapsed >= settings.duration_seconds
    if settings.records is not None:
        return False
    return all((consumer.position(p) or 0) >= end for p, end in settings.ends.items())


def _count(batch: FetchedBatch, result: ReadResult, begin_ns: int, read_ns: int) -> None:
    columns = batch.columns()
    result.batches += 1
    result.records += len(columns.values)
    result.size_bytes += sum(len(value) for value in columns.values if value is not None)
    result.size_bytes += sum(len(key) for key in columns.keys if key is not None)
    for value in columns.values:
        due_ns = due_ns_of(value)
        if due_ns is None or due_ns < begin_ns:
            continue
        if due_ns > read_ns:
            result.future_records += 1
        else:
            result.latencies.add((read_ns - due_ns) / 1e6)
