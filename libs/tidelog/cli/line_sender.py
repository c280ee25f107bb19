"""Sends lines to a producer and records their outcomes in the tally."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from tidelog.cli.lines import KeyedValue, Line, LineError, to_keyed_value
from tidelog.cli.produce_tally import ProduceTally
from tidelog.client import BatchDelivery, BatchReport, Delivery
from tidelog.errors import ErrorCode, TidelogError

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


class LineProducer(Protocol):
    """The part of `tidelog.client.Producer` that is used here."""

    async def send(
        self, topic: str, value: bytes | None, key: bytes | None = None, *, partition: int | None
    ) -> asyncio.Future[Delivery]: ...

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        *,
        partition: int | None,
    ) -> BatchDelivery: ...


def _is_large(record: KeyedValue) -> bool:
    return len(record.value) > LARGE_LINE_BYTES


class LineSender:
    def __init__(
        self,
        producer: LineProducer,
        topic: str,
        partition: int | None,
        key_separator: bytes | None,
        tally: ProduceTally,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._key_separator = key_separator
        self._tally = tally
        self._answered = asyncio.Event()

    async def send(self, lines: Sequence[Line]) -> None:
        """Sends lines, and waits only for buffer space. Errors of lines are recorded in the tally.
        After an error that would affect the following lines too, nothing more is sent."""
        for start in range(0, len(lines), MAX_BULK_LINES):
            numbers, records = self._sendable(lines[start : start + MAX_BULK_LINES])
            await self._wait_for(lambda: self._tally.in_flight < MAX_LINES_IN_FLIGHT)
            in_bulk = len(records) >= BULK_LINES and not any(map(_is_large, records))
            if not in_bulk or not await self._send_bulk(numbers, records):
                await self._send_singly(numbers, records)

    async def wait_for_outcomes(self) -> None:
        """Waits until the tally has the outcome of every line."""
        await self._wait_for(lambda: not self._tally.in_flight)

    async def _wait_for(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._answered.clear()
            await self._answered.wait()

    def _sendable(self, lines: Sequence[Line]) -> tuple[list[int], list[KeyedValue]]:
        numbers: list[int] = []
        records: list[KeyedValue] = []
        for line in lines:
            try:
                records.append(to_keyed_value(line, self._key_separator))
            except LineError as error:
                self._tally.take(1)
                self._tally.failed(line.number, line.number, 1, error)
            else:
                numbers.append(line.number)
        return numbers, records

    async def _send_singly(self, numbers: list[int], records: list[KeyedValue]) -> None:
        for number, (key, value) in zip(numbers, records, strict=True):
            if self._tally.stopped:
                return
            try:
                delivery = await self._producer.send(
                    self._topic, value, key, partition=self._partition
                )
            except TidelogError as error:
                self._tally.take(1)
                self._tally.failed(number, number, 1, error)
                continue
            self._tally.take(1)
            self._follow_one(delivery, number, len(value) + len(key or b""))

    async def _send_bulk(self, numbers: list[int], records: list[KeyedValue]) -> bool:
        """Returns False, with nothing sent, if one of the lines is too large; it has to be
        found."""
        if self._tally.stopped:
            return True
        values = [record.value for record in records]
        keys = None if self._key_separator is None else [record.key for record in records]
        size_bytes = sum(map(len, values)) + sum(len(key or b"") for key in keys or ())
        try:
            delivery = await self._producer.send_many(
                self._topic, values, keys, partition=self._partition
            )
        except TidelogError as error:
            if error.code is ErrorCode.BATCH_TOO_LARGE:
                return False
            self._tally.take(len(records))
            self._tally.failed(numbers[0], numbers[-1], len(records), error)
            return True
        self._tally.take(len(records))
        self._follow_batches(delivery, numbers[0], numbers[-1], len(records), size_bytes)
        return True

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
