"""NATS clients in a separate process. Streams with three replicas, on files, take the place of a
topic's partitions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import nats
from nats.aio.client import Client
from nats.errors import Error as ClientError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType

from bench.suite.consumers import Read
from bench.suite.matrix import Case
from bench.suite.payload import values
from bench.suite.producers import Produced

REPLICAS = 3
# The unacknowledged bytes: as many as the other producers buffer.
MAX_PENDING = 32_000
FETCH = 1_000
GIVE_UP_S = 60.0
_TIMEOUT_S = 30.0
_CONNECT_S = 2


async def why_not_ready(urls: Sequence[str], servers: int) -> str | None:
    """Returns None if streams with `servers` replicas can be created."""
    try:
        async with _jetstream(urls) as (_, stream):
            await stream.add_stream(name="ready", subjects=["ready"], num_replicas=servers)
            await stream.delete_stream("ready")
    except (ClientError, OSError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"
    return None


async def create(urls: Sequence[str], topic: str, streams: int) -> None:
    async with _jetstream(urls) as (_, jetstream):
        for number in range(streams):
            await jetstream.add_stream(
                name=_stream(topic, number),
                subjects=[_subject(topic, number)],
                num_replicas=REPLICAS,
                storage=StorageType.FILE,
            )


async def delete(urls: Sequence[str], topic: str, streams: int) -> None:
    async with _jetstream(urls) as (_, jetstream):
        for number in range(streams):
            await jetstream.delete_stream(_stream(topic, number))


async def produce(urls: Sequence[str], topic: str, case: Case, seconds: float) -> Produced:
    """Publishes as fast as possible, round-robin over the streams, until everything is
    acknowledged."""
    batch = values(case.record_bytes, case.records_per_batch)
    sent = failed = 0

    def on_acknowledgement(future: asyncio.Future[object]) -> None:
        nonlocal failed
        failed += future.cancelled() or future.exception() is not None

    async with _jetstream(urls) as (_, jetstream):
        began_cpu, began = time.process_time(), time.perf_counter()
        end = began + seconds
        while time.perf_counter() < end:
            subject = _subject(topic, sent // len(batch) % case.partitions)
            for value in batch:
                acknowledged = await jetstream.publish_async(subject, value, wait_stall=_TIMEOUT_S)
                acknowledged.add_done_callback(on_acknowledgement)
            sent += len(batch)
        await jetstream.publish_async_completed()
        took, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    records = sent - failed
    return Produced(records * case.record_bytes, records, failed, took, cpu)


async def fill(urls: Sequence[str], topic: str, case: Case, size: int) -> int:
    """Writes records of at least `size` bytes in total. Returns their number."""
    value = values(case.record_bytes, 1)[0]
    count = -(-size // case.record_bytes)
    async with _jetstream(urls) as (_, jetstream):
        acknowledged = [
            await jetstream.publish_async(
                _subject(topic, number % case.partitions), value, wait_stall=_TIMEOUT_S
            )
            for number in range(count)
        ]
        await asyncio.gather(*acknowledged)
    return count


async def one_in_flight(urls: Sequence[str], topic: str, case: Case, seconds: float) -> list[float]:
    """Like `producers.one_in_flight`."""
    value = values(case.record_bytes, 1)[0]
    found: list[float] = []
    async with _jetstream(urls) as (_, jetstream):
        began = time.perf_counter()
        number = 0
        while (sent := time.perf_counter()) < began + seconds:
            await jetstream.publish(_subject(topic, number % case.partitions), value)
            if sent > began + seconds / 10:
                found.append((time.perf_counter() - sent) * 1000)
            number += 1
    return sorted(found)


async def read_all(urls: Sequence[str], topic: str, streams: int, records: int) -> Read:
    """Reads until the expected number of records, the whole content of the streams, has arrived."""
    async with _jetstream(urls) as (_, jetstream):
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL)
        readers = [
            await jetstream.pull_subscribe(
                _subject(topic, number), stream=_stream(topic, number), config=config
            )
            for number in range(streams)
        ]
        began_cpu, began = time.process_time(), time.perf_counter()
        left = records
        all_read = asyncio.Event()

        async def read(reader: JetStreamContext.PullSubscription) -> None:
            nonlocal left
            while True:
                with suppress(TimeoutError):  # the stream is read
                    found = await reader.fetch(FETCH, timeout=1)
                    left -= len(found)
                if left <= 0:
                    all_read.set()

        reading = [asyncio.create_task(read(reader)) for reader in readers]
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await all_read.wait()
        except TimeoutError:
            raise TimeoutError(f"{left:,} of {records:,} records are missing") from None
        read_by_all = Read(records, time.perf_counter() - began, time.process_time() - began_cpu)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        return read_by_all


@asynccontextmanager
async def _jetstream(urls: Sequence[str]) -> AsyncIterator[tuple[Client, JetStreamContext]]:
    connection = await nats.connect(
        list(urls), connect_timeout=_CONNECT_S, allow_reconnect=False, error_cb=_ignored
    )
    try:
        yield (
            connection,
            connection.jetstream(timeout=_TIMEOUT_S, publish_async_max_pending=MAX_PENDING),
        )
    finally:
        await connection.close()


async def _ignored(error: Exception) -> None:
    """Does nothing: the waiting caller gets the errors. By default they are also logged."""


def _stream(topic: str, number: int) -> str:
    return f"{topic}-{number}"


def _subject(topic: str, number: int) -> str:
    return f"{topic}.{number}"
