"""Writes numbered records without a pause while the cluster is disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from beside import beside
from integration.waiting import TIMEOUT_SECONDS, until_true
from tidelog.client import Delivery, Producer
from tidelog.model import Record
from tidelog_runtime.local.cluster import LocalCluster

# The most records that wait for their acknowledgement.
MAX_UNACKNOWLEDGED = 64
# The pause between two records, so that a test writes hundreds and not hundreds of thousands.
PAUSE_SECONDS = 0.002
# After this time a request to a paused leader is given up, and its successor gets it.
REQUEST_TIMEOUT_MS = 3_000


class Load:
    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.acknowledged: list[bytes] = []
        self.failures: list[BaseException] = []

    def note(self, value: bytes, delivery: asyncio.Future[Delivery]) -> None:
        error = delivery.exception()
        if error is None:
            self.acknowledged.append(value)
        else:
            self.failures.append(error)

    async def acknowledges(self, count: int, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Returns when so many more records are acknowledged than now."""
        expected = len(self.acknowledged) + count
        await until_true(
            lambda: len(self.acknowledged) >= expected or bool(self.failures),
            f"{self.topic} takes {count} more records with acks=all",
            timeout_seconds,
        )
        assert not self.failures, self.failures[0]

    def assert_all_in(self, records: list[Record]) -> None:
        """No acknowledged record is missing, no record was read that was not sent, and none
        twice."""
        read = [record.value for record in records]
        missing = set(self.acknowledged) - set(read)
        assert not missing, f"{len(missing)} acknowledged records are lost"
        assert all(value is not None and value.startswith(b"record ") for value in read)
        assert len(set(read)) == len(read), "a retry was written twice"


@asynccontextmanager
async def load(
    cluster: LocalCluster, topic: str, partition: int | None = None
) -> AsyncIterator[Load]:
    """Writes with acks=all until the context ends; every record has its outcome then.

    Fails if a send failed, which must not happen with retries."""
    written = Load(topic)
    room = asyncio.Semaphore(MAX_UNACKNOWLEDGED)
    producer = Producer(
        cluster.bootstrap,
        linger_ms=1,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        delivery_timeout_ms=25_000,
    )

    async def write() -> None:
        number = 0
        while True:
            await room.acquire()
            value = b"record %d" % number
            delivery = await producer.send(topic, value, partition=partition)
            delivery.add_done_callback(partial(written.note, value))
            delivery.add_done_callback(lambda _: room.release())
            number += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async with producer, beside(write()):
        await written.acknowledges(20)
        yield written
    assert not written.failures, written.failures[0]
