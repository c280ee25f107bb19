"""Sends lines to a producer and records their outcomes in the tally."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from tidelog.cli.lines import Line, LineError, LineRecord
from tidelog.cli.produce_tally import ProduceTally
from tidelog.client import BatchDelivery, BatchReport, Delivery
from tidelog.errors import ErrorCode, TidelogError
from tidelog.record_batch import Headers

# From this number of lines on, lines are sent as a batch, which costs a fraction. Fewer lines are
# sent one by one, so that a slow stream of lines lingers and shares batches.
BULK_LINES = 32
# Lines that are sent as one batch, and reported together if they fail.
MAX_BULK_LINES = 10_000
# If any line is longer, which its topic may reject, lines are sent one by one: an error then names
# the line.
LARGE_LINE_BYTES = (1 << 20) - 1_024
# Lines without an answer. The producer bounds their bytes; this bounds their number, because short
# lines have a high overhead for each byte.
MAX_LINES_IN_FLIGHT = 100_000
_ERRORS_OF_RECORDS = frozenset({ErrorCode.BATCH_TOO_LARGE, ErrorCode.INVALID_BATCH})


class LineProducer(Protocol):
    """The part of `tidelog.client.Producer` that is used here."""

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None,
        headers: Headers,
        timestamp_ms: int | None,
    ) -> asyncio.Future[Delivery]: ...

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        *,
        partition: int | None,
        timestamps_ms: Sequence[int] | None,
    ) -> BatchDelivery: ...


class _Run(NamedTuple):
    """Consecutive records for one batch: of one partition, and all with a timestamp or all without.
    Only records without headers fit into a column of `send_many`."""

    numbers: list[int]
    records: list[LineRecord]
    fits_bulk: bool

    @property
    def size_bytes(self) -> int:
        return sum(map(_size_bytes, self.records))


def _size_bytes(record: LineRecord) -> int:
    """Returns the bytes of key and value."""
    return len(record.value or b"") + len(record.key or b"")


class LineSender:
    """Sends the lines that `parse` turns into records.

    - `partition`: of lines that name none; None: the key chooses it.
    - `parse`: raises `LineError`.
    """

    def __init__(
        self,
        producer: LineProducer,
        topic: str,
        partition: int | None,
        parse: Callable[[Line], LineRecord],
        tally: ProduceTally,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._parse = parse
        self._tally = tally
        self._answered = asyncio.Event()

    async def send(self, lines: Sequence[Line]) -> None:
        """Sends lines, and waits only for buffer space. Errors of lines are recorded in the tally.
        After an error that would affect the following lines too, nothing more is sent."""
        for start in range(0, len(lines), MAX_BULK_LINES):
            for run in self._runs(lines[start : start + MAX_BULK_LINES]):
                await self._wait_for(lambda: self._tally.in_flight < MAX_LINES_IN_FLIGHT)
                if not run.fits_bulk or not await self._send_bulk(run):
                    await self._send_singly(run)

    async def wait_for_outcomes(self) -> None:
        """Waits until the tally has the outcome of every line."""
        await self._wait_for(lambda: not self._tally.in_flight)

    async def _wait_for(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._answered.clear()
            await self._answered.wait()

    def _runs(self, lines: Sequence[Line]) -> Iterator[_Run]:
        """Yields the records in runs. Where the tally stops at a line that is no record, the
        records before it have been sent."""
        run = _Run([], [], False)
        run_kind = None
        for line in lines:
            if self._tally.stopped:
                return
            try:
                record = self._parse(line)
            except LineError as error:
                if self._tally.stops_at_lines:
                    yield from _checked(run)
                    run = _Run([], [], False)
                self._tally.take(1)
                self._tally.failed(line.number, line.number, 1, error)
                continue
            kind = _kind(record)
            if kind != run_kind:
                yield from _checked(run)
                run, run_kind = _Run([], [], False), kind
            run.numbers.append(line.number)
            run.records.append(record)
        yield from _checked(run)

    async def _send_singly(self, run: _Run) -> None:
        for number, record in zip(run.numbers, run.records, strict=True):
            if self._tally.stopped:
                return
            try:
                delivery = await self._producer.send(
                    self._topic,
                    record.value,
                    record.key,
                    partition=self._partition_of(record),
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                )
            except TidelogError as error:
                self._tally.take(1)
                self._tally.failed(number, number, 1, error)
                continue
            self._tally.take(1)
            self._follow_one(delivery, number, _size_bytes(record))

    async def _send_bulk(self, run: _Run) -> bool:
        """Returns False, with nothing sent, if one of the lines is too large or has too long a key;
        it has to be found."""
        if self._tally.stopped:
            return True
        numbers, records = run.numbers, run.records
        keys = [record.key for record in records]
        try:
            delivery = await self._producer.send_many(
                self._topic,
                [record.value for record in records],
                keys if any(key is not None for key in keys) else None,
                partition=self._partition_of(records[0]),
                timestamps_ms=_timestamps_ms(records),
            )
        except TidelogError as error:
            if error.code in _ERRORS_OF_RECORDS and not error.outcome_unknown:
                return False
            self._tally.take(len(records))
            self._tally.failed(numbers[0], numbers[-1], len(records), error)
            return True
        self._tally.take(len(records))
        self._follow_batches(delivery, numbers[0], numbers[-1], len(records), run.size_bytes)
        return True

    def _partition_of(self, record: LineRecord) -> int | None:
        return self._partition if record.partition is None else record.partition

    def _follow_one(self, delivery: asyncio.Future[Delivery], number: int, size_bytes: int) -> None:
        def answered(done: asyncio.Future[Delivery]) -> None:
            error = done.exception()
            if error is None:
                self._tally.delivered_more(1, size_bytes)
            else:
                self._tally.failed(number, number, 1, error)
            self._answered.set()

        delivery.add_done_callback(answered)

    def _follow_batches(
        self, delivery: BatchDelivery, first: int, last: int, count: int, size_bytes: int
    ) -> None:
        def answered(done: asyncio.Future[list[BatchReport | BaseException]]) -> None:
            outcomes = done.result()
            errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
            delivered = sum(o.record_count for o in outcomes if isinstance(o, BatchReport))
            # Exact if all were delivered, otherwise an estimate by the average size.
            self._tally.delivered_more(delivered, size_bytes * delivered // count)
            if errors:
                self._tally.failed(first, last, count - delivered, errors[0])
            self._answered.set()

        asyncio.gather(*delivery.batches, return_exceptions=True).add_done_callback(answered)


def _kind(record: LineRecord) -> tuple[int | None, bool, bool]:
    """Records of one kind can be sent in one call."""
    return record.partition, record.timestamp_ms is None, not record.headers


def _checked(run: _Run) -> Iterable[_Run]:
    if not run.records:
        return ()
    fits_bulk = (
        len(run.records) >= BULK_LINES
        and not run.records[0].headers
        and not any(len(record.value or b"") > LARGE_LINE_BYTES for record in run.records)
    )
    return (run._replace(fits_bulk=fits_bulk),)


def _timestamps_ms(records: Sequence[LineRecord]) -> list[int] | None:
    """Returns None if the records have none: see `_kind`."""
    return [r.timestamp_ms for r in records if r.timestamp_ms is not None] or None
