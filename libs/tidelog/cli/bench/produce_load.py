"""Produces a load, at a rate or as fast as possible, and measures its acknowledgements.

At a rate the load is an open loop: records are due at fixed times, and the latency of a record
counts from when it was due. So it includes the wait for a client or a cluster that is behind
("coordinated omission" leaves it out)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from tidelog.cli.bench.latencies import Latencies
from tidelog.cli.bench.payload import Payload
from tidelog.client import BatchDelivery, BatchReport, Delivery
from tidelog.errors import TidelogError

# Without a rate, and if more are due at once: records of one call, which costs a fraction of a
# call for each record. Their latency counts from when the first of them was due.
BULK_RECORDS = 1_000
# Bytes of one call, unless a single record has more.
BULK_BYTES = 4 << 20
# The longest sleep until the next record is due, so that the end of the load is not missed.
MAX_PAUSE_SECONDS = 0.1


class LoadProducer(Protocol):
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

    async def flush(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """A load ends after `records` or after `duration_seconds`, whichever comes first.

    - `rate`: records/s; None: as fast as possible.
    - `partition`: None: by key, or in turn.
    - `max_in_flight`: records without an answer, at least 1.
    """

    topic: str
    record_bytes: int
    records: int | None
    duration_seconds: float | None
    rate: float | None
    partition: int | None
    max_in_flight: int

    @property
    def bulk_records(self) -> int:
        # Several calls fit into what may be in flight.
        fitting = self.max_in_flight // 4
        return max(1, min(BULK_RECORDS, BULK_BYTES // self.record_bytes, fitting))


@dataclass(slots=True)
class LoadResult:
    """`first_error`: of a record that was not delivered, or is not known to be."""

    sent: int = 0
    acknowledged: int = 0
    acknowledged_bytes: int = 0
    failed: int = 0
    seconds: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)
    errors: Counter[str] = field(default_factory=Counter)
    first_error: BaseException | None = None

    @property
    def in_flight(self) -> int:
        return self.sent - self.acknowledged - self.failed

    def fail(self, count: int, error: BaseException) -> None:
        self.failed += count
        name = error.code.name if isinstance(error, TidelogError) else type(error).__name__
        self.errors[name] += count
        if self.first_error is None:
            self.first_error = error


@dataclass(slots=True)
class _Call:
    """The records of one `send_many` that have no outcome yet."""

    due: float
    batches_left: int
    records_left: int
    error: BaseException | None = None


class ProduceLoad:
    """One load. `now` returns seconds that only increase, `wall_ns` nanoseconds since 1970."""

    def __init__(
        self,
        producer: LoadProducer,
        settings: LoadSettings,
        payload: Payload,
        result: LoadResult,
        now: Callable[[], float] = time.perf_counter,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._producer = producer
        self._settings = settings
        self._payload = payload
        self._result = result
        self._now = now
        self._wall_ns = wall_ns
        self._begin = 0.0
        self._is_stopped = False
        self._answered = asyncio.Event()

    async def run(self) -> None:
        """Sends the load and waits for the outcome of every record. Cancelling it, or an error of a
        call, ends the load early; `finish` then waits for the rest."""
        self._begin = self._now()
        while not self._is_stopped and (due := self._due_records()) != 0:
            if due < 0:
                await asyncio.sleep(self._pause_seconds())
                continue
            count = self._settings.bulk_records if due >= self._settings.bulk_records else 1
            if self._result.in_flight + count > self._settings.max_in_flight:
                self._answered.clear()
                await self._answered.wait()
            elif count > 1:
                await self._send_bulk(count)
            else:
                await self._send_one()
        await self.finish()

    async def finish(self) -> None:
        """Waits for the outcome of every record that was sent."""
        await self._producer.flush()
        while self._result.in_flight:
            self._answered.clear()
            await self._answered.wait()
        self._result.seconds = self._now() - self._begin

    def _due_records(self) -> int:
        """Returns how many records may be sent now; 0: the load is over; -1: the next one is not
        due yet."""
        settings, sent = self._settings, self._result.sent
        elapsed = self._now() - self._begin
        if settings.duration_seconds is not None and elapsed >= settings.duration_seconds:
            return 0
        if settings.rate is None:
            due = settings.bulk_records
        else:
            due = int(elapsed * settings.rate) + 1 - sent
        if settings.records is not None:
            if sent >= settings.records:
                return 0
            due = min(due, settings.records - sent)
        return due if due > 0 else -1

    def _pause_seconds(self) -> float:
        assert self._settings.rate is not None, "without a rate records are always due"
        next_due = self._begin + self._result.sent / self._settings.rate
        return min(MAX_PAUSE_SECONDS, max(0.0, next_due - self._now()))

    def _due_time(self) -> tuple[float, int]:
        """Returns when the next record is due, by both clocks."""
        now = self._now()
        if self._settings.rate is None:
            return now, self._wall_ns()
        due = self._begin + self._result.sent / self._settings.rate
        return due, self._wall_ns() - round((now - due) * 1e9)

    async def _send_one(self) -> None:
        due, due_ns = self._due_time()
        self._result.sent += 1
        try:
            delivery = await self._producer.send(
                self._settings.topic,
                self._payload.value(due_ns),
                self._payload.key(),
                partition=self._settings.partition,
            )
        except TidelogError as error:
            self._stop(1, error)
            return
        except asyncio.CancelledError:
            self._result.sent -= 1
            raise
        delivery.add_done_callback(partial(self._answer_one, due))

    async def _send_bulk(self, count: int) -> None:
        due, due_ns = self._due_time()
        values = [self._payload.value(due_ns) for _ in range(count)]
        keys = [self._payload.key() for _ in range(count)]
        has_keys = keys[0] is not None
        self._result.sent += count
        sending = asyncio.ensure_future(
            self._producer.send_many(
                self._settings.topic,
                values,
                keys if has_keys else None,
                partition=self._settings.partition,
            )
        )
        try:
            # A cancelled call would have sent some of its batches, and not say which.
            delivery = await asyncio.shield(sending)
        except TidelogError as error:
            self._stop(count, error)
            return
        except asyncio.CancelledError:
            await self._end_bulk(sending, due, count)
            raise
        self._follow(delivery, due, count)

    async def _end_bulk(
        self, sending: asyncio.Future[BatchDelivery], due: float, count: int
    ) -> None:
        try:
            self._follow(await sending, due, count)
        except TidelogError as error:
            self._stop(count, error)

    def _follow(self, delivery: BatchDelivery, due: float, count: int) -> None:
        call = _Call(due, len(delivery.batches), count)
        for batch in delivery.batches:
            batch.add_done_callback(partial(self._answer_batch, call))

    def _stop(self, count: int, error: TidelogError) -> None:
        self._is_stopped = True
        self._result.fail(count, error)

    def _answer_one(self, due: float, done: asyncio.Future[Delivery]) -> None:
        error = done.exception()
        if error is None:
            self._acknowledge(due, 1)
        else:
            self._result.fail(1, error)
        self._answered.set()

    def _answer_batch(self, call: _Call, done: asyncio.Future[BatchReport]) -> None:
        error = done.exception()
        call.batches_left -= 1
        if error is None:
            count = min(done.result().record_count, call.records_left)
            call.records_left -= count
            self._acknowledge(call.due, count)
        elif call.error is None:
            call.error = error
        # A failed batch does not say how many records it has.
        if not call.batches_left and call.error is not None:
            self._result.fail(call.records_left, call.error)
        self._answered.set()

    def _acknowledge(self, due: float, count: int) -> None:
        self._result.acknowledged += count
        self._result.acknowledged_bytes += count * self._settings.record_bytes
        self._result.latencies.add(max(0.0, self._now() - due) * 1000, count)
