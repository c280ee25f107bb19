"""Producing clients in a separate process."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from functools import partial
from typing import NamedTuple

from bench.open_loop import Latencies, Schedule
from bench.percentiles import Timed, timed
from bench.suite.matrix import BATCH_BYTES, Case
from bench.suite.payload import values
from tidelog.client import Delivery, Producer
from tidelog.errors import TidelogError
from tidelog.model import Codec

# The warm-up of the open loop, which does not count.
WARM_UP_S = 1.0
# Timeout for the last acknowledgements after an overload.
DRAIN_S = 30.0
# The time when a record was due, by the clock that all processes of a machine share.
STAMP = struct.Struct("<d")
# Stamps of records that are not timed; LAST is in the last record of its partition.
NOT_TIMED, LAST = 0.0, -1.0


class Produced(NamedTuple):
    """The acknowledged values.

    - `bytes`: before compression.
    - `failed`: the number of failed records.
    - `cpu_s`: processor time of this process.
    """

    bytes: int
    records: int
    failed: int
    seconds: float
    cpu_s: float

    @property
    def mb_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6


async def produce(bootstrap: str, topic: str, case: Case, seconds: float) -> Produced:
    """Produces as fast as possible, round-robin over the partitions, until everything is
    acknowledged."""
    batch = values(case.record_bytes, case.records_per_batch)
    async with Producer(
        bootstrap,
        acks=case.acks,
        codec=case.codec,
        batch_bytes=max(BATCH_BYTES, case.record_bytes),
        max_request_bytes=1 << 20,
    ) as producer:
        for number in range(case.partitions):
            await producer.send_many(topic, batch[:1], partition=number)
        await producer.flush()
        failed = 0

        def on_delivery(records: int, delivery: asyncio.Future[object]) -> None:
            nonlocal failed
            if delivery.exception() is not None:
                failed += records

        sent = 0
        began_cpu, began = time.process_time(), time.perf_counter()
        end = began + seconds
        while time.perf_counter() < end:
            number = sent % case.partitions
            if case.by_record:
                for value in batch:
                    one = await producer.send(topic, value, partition=number)
                    one.add_done_callback(partial(on_delivery, 1))
            else:
                many = await producer.send_many(topic, batch, partition=number)
                for of_batch in many.batches:
                    of_batch.add_done_callback(partial(on_delivery, len(batch)))
            sent += 1
        await producer.flush()
        took, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    records = sent * len(batch) - failed
    return Produced(records * case.record_bytes, records, failed, took, cpu)


async def fill(bootstrap: str, topic: str, partitions: int, record_bytes: int, size: int) -> int:
    """Writes records of at least `size` bytes in total. Returns their number.

    Raises the error of a record that is not written.
    """
    batch = values(record_bytes, BATCH_BYTES // record_bytes)
    rounds = -(-size // (partitions * len(batch) * record_bytes))
    async with Producer(bootstrap, batch_bytes=BATCH_BYTES) as producer:
        last = []
        for _ in range(rounds):
            last = [
                await producer.send_many(topic, batch, partition=number)
                for number in range(partitions)
            ]
        for delivery in last:
            await delivery
        await producer.flush()
    return rounds * partitions * len(batch)


async def touch(bootstrap: str, topics: list[str], partitions: int, record_bytes: int) -> float:
    """Writes a record to each partition. Returns the seconds until all are acknowledged."""
    value = values(record_bytes, 1)
    async with Producer(bootstrap, codec=Codec.NONE) as producer:
        began = time.perf_counter()
        sent = [
            await producer.send_many(topic, value, partition=number)
            for topic in topics
            for number in range(partitions)
        ]
        for delivery in sent:
            await delivery
        return time.perf_counter() - began


async def one_in_flight(
    bootstrap: str, topic: str, partitions: int, record_bytes: int, seconds: float
) -> list[float]:
    """Returns the sorted milliseconds from each `send` to its acknowledgement by all replicas. The
    first tenth of the time does not count."""
    rest = bytes(record_bytes - STAMP.size)
    found: list[float] = []
    async with Producer(bootstrap, linger_ms=0) as producer:
        began = time.perf_counter()
        number = 0
        while (sent := time.perf_counter()) < began + seconds:
            delivery = await producer.send(
                topic, STAMP.pack(sent) + rest, partition=number % partitions
            )
            await delivery
            if sent > began + seconds / 10:
                found.append((time.perf_counter() - sent) * 1000)
            number += 1
        await _end(producer, topic, partitions)
    return sorted(found)


async def many_in_flight(
    bootstrap: str, topic: str, partitions: int, in_flight: int, seconds: float
) -> tuple[float, list[float]]:
    """Returns records per second, and their sorted latencies in milliseconds.

    The given number of records is in flight. An acknowledged record is replaced by one for a random
    partition, as a key would choose it. Round-robin would make bunches: the records that one leader
    has acknowledged would go to the next leader together.
    """
    value = values(1 << 10, 1)[0]
    found: list[float] = []
    async with Producer(bootstrap, linger_ms=0) as producer:
        for number in range(partitions):
            await (await producer.send(topic, value, partition=number))
        began = time.perf_counter()
        end = began + seconds

        async def send(seed: int) -> None:
            rng = random.Random(seed)
            while (sent := time.perf_counter()) < end:
                await (await producer.send(topic, value, partition=rng.randrange(partitions)))
                found.append((time.perf_counter() - sent) * 1000)

        await asyncio.gather(*map(send, range(in_flight)))
        return len(found) / (time.perf_counter() - began), sorted(found)


async def open_loop(
    bootstrap: str, topics: list[str], partitions: int, rate: float, seconds: float
) -> Timed:
    """Sends single records of 1 KiB at a fixed rate, round-robin over topics and partitions.

    Latencies count from the due time of a record to its acknowledgement by all replicas.
    """
    rest = bytes((1 << 10) - STAMP.size)
    latencies = Latencies()
    in_flight: set[asyncio.Future[Delivery]] = set()

    def on_delivery(due: float, delivery: asyncio.Future[Delivery]) -> None:
        in_flight.discard(delivery)
        if delivery.exception() is None:
            latencies.note(due, time.perf_counter())
        else:
            latencies.note_failure(due)

    async with Producer(bootstrap, linger_ms=0) as producer:
        for topic in topics:
            await (await producer.send(topic, STAMP.pack(NOT_TIMED) + rest, partition=0))
        begin = time.perf_counter() + 0.1
        schedule = Schedule(rate, begin)
        end = begin + WARM_UP_S + seconds
        sent = 0
        while schedule.next_s < end:
            await asyncio.sleep(max(0.0, schedule.next_s - time.perf_counter()))
            for due in schedule.due(min(time.perf_counter(), end)):
                topic = topics[sent % len(topics)]
                number = sent // len(topics) % partitions
                sent += 1
                try:
                    delivery = await producer.send(topic, STAMP.pack(due) + rest, partition=number)
                except TidelogError:
                    latencies.note_failure(due)
                    continue
                in_flight.add(delivery)
                delivery.add_done_callback(partial(on_delivery, due))
        if in_flight:
            await asyncio.wait(set(in_flight), timeout=DRAIN_S)
        for topic in topics:
            await _end(producer, topic, partitions)
    counted = latencies.within(begin + WARM_UP_S, end)
    return timed(counted, latencies.failed)


async def _end(producer: Producer, topic: str, partitions: int) -> None:
    for number in range(partitions):
        await producer.send(topic, STAMP.pack(LAST), partition=number)
    await producer.flush()
