"""Producers: one fills a topic as fast as possible, one writes at a fixed rate in an open loop."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from bench.grow.ledger import VALUE_BYTES, Ledger, value_of
from bench.open_loop import Latencies, Schedule
from tidelog.client import BatchReport, Delivery, Producer
from tidelog.errors import TidelogError

BATCH_BYTES = 64 << 10
RECORDS_PER_BATCH = BATCH_BYTES // VALUE_BYTES


async def fill(
    bootstrap: str, topic: str, partitions: int, size_bytes: int, ledger: Ledger
) -> float:
    """Fills a topic. Returns the seconds until all replicas have acknowledged everything.

    Raises the first error of a batch.
    """
    per_partition = -(-size_bytes // (partitions * RECORDS_PER_BATCH * VALUE_BYTES))
    failed: list[BaseException] = []

    def on_batch(number: int, serial: int, batch: asyncio.Future[BatchReport]) -> None:
        error = batch.exception()
        if error is not None:
            failed.append(error)
        else:
            report = batch.result()
            ledger.acknowledge(number, report.base_offset, serial, report.record_count)

    began_s = time.perf_counter()
    async with Producer(bootstrap, batch_bytes=BATCH_BYTES) as producer:
        for _ in range(per_partition):
            for number in range(partitions):
                serial = ledger.take(RECORDS_PER_BATCH)
                values = [value_of(serial + step) for step in range(RECORDS_PER_BATCH)]
                delivery = await producer.send_many(topic, values, partition=number)
                (batch,) = delivery.batches
                batch.add_done_callback(partial(on_batch, number, serial))
                if failed:
                    raise failed[0]
        await producer.flush()
    if failed:
        raise failed[0]
    return time.perf_counter() - began_s


class Load:
    """Sends single records with acks=all, to each partition in turn, until it is stopped.

    - `latencies`: from the due time of each record to its acknowledgement.
    - `late`: from the due time to the time when it was sent.
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, rate: float, ledger: Ledger
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self.ledger = ledger
        self._stopped = False
        self.sent = 0
        self.errors: list[str] = []
        self.latencies = Latencies()
        self.late = Latencies()

    def stop(self) -> None:
        self._stopped = True

    async def run(self) -> None:
        """Sends records until it is stopped. Returns once every record has its outcome."""
        async with Producer(self._bootstrap, linger_ms=0) as producer:
            schedule = Schedule(self._rate, time.perf_counter())
            while not self._stopped:
                for due_s in schedule.due(time.perf_counter()):
                    await self._send(producer, due_s)
                await asyncio.sleep(max(0.0, schedule.next_s - time.perf_counter()))

    async def _send(self, producer: Producer, due_s: float) -> None:
        number = self.sent % self._partitions
        serial = self.ledger.take(1)
        self.sent += 1
        self.late.note(due_s, time.perf_counter())
        try:
            delivery = await producer.send(self._topic, value_of(serial), partition=number)
        except TidelogError as error:
            self._failed(due_s, error)
            return
        delivery.add_done_callback(partial(self._on_delivery, due_s, number, serial))

    def _on_delivery(
        self, due_s: float, number: int, serial: int, delivery: asyncio.Future[Delivery]
    ) -> None:
        error = delivery.exception()
        if error is not None:
            self._failed(due_s, error)
            return
        self.latencies.note(due_s, time.perf_counter())
        self.ledger.acknowledge(number, delivery.result().offset, serial, 1)

    def _failed(self, due_s: float, error: BaseException) -> None:
        self.latencies.note_failure(due_s)
        self.errors.append(str(error))
