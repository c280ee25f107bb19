"""Consuming clients in a separate process."""

from __future__ import annotations

import time
from typing import NamedTuple

from bench.percentiles import Timed, timed
from bench.suite.producers import LAST, NOT_TIMED, STAMP
from tidelog.client import Consumer
from tidelog.model import TopicPartition

POLL_MS = 200
# A producer at full speed has ended if no record arrives for this time.
QUIET_S = 1.5
FIRST_S = 30.0
GIVE_UP_S = 60.0


class Read(NamedTuple):
    """A reading. `cpu_s`: processor time of this process."""

    records: int
    seconds: float
    cpu_s: float

    def mb_per_second(self, record_bytes: int) -> float:
        return self.records * record_bytes / self.seconds / 1e6

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds


async def read_all(bootstrap: str, topic: str, records: int, *, one_by_one: bool) -> Read:
    """Reads from the first poll until the expected number of records, the whole topic, has
    arrived."""
    async with Consumer(bootstrap) as consumer:
        await consumer.assign_topic(topic)
        began_cpu, began = time.process_time(), time.perf_counter()
        found = 0
        while found < records:
            found += await _poll(consumer, one_by_one=one_by_one)
        return Read(found, time.perf_counter() - began, time.process_time() - began_cpu)


async def read_for(bootstrap: str, topic: str, seconds: float) -> Read:
    """Reads batches from the beginning, and again from there until the time is up."""
    async with Consumer(bootstrap) as consumer:
        partitions = await consumer.assign_topic(topic)
        ends = await consumer.end_offsets(partitions)
        total = sum(ends.values())
        began_cpu, began = time.process_time(), time.perf_counter()
        found = of_round = 0
        while time.perf_counter() < began + seconds:
            count = await _poll(consumer, one_by_one=False)
            found += count
            of_round += count
            if of_round >= total:
                of_round = 0
                await consumer.seek_to_beginning()
        return Read(found, time.perf_counter() - began, time.process_time() - began_cpu)


async def follow(bootstrap: str, topic: str, *, one_by_one: bool) -> Read:
    """Reads new records, from the first one to the last before a pause."""
    async with Consumer(bootstrap) as consumer:
        await _at_end(consumer, topic)
        waits_until = time.perf_counter() + FIRST_S
        first = last = last_cpu = first_cpu = 0.0
        found = 0
        while time.perf_counter() < waits_until:
            count = await _poll(consumer, one_by_one=one_by_one)
            if count:
                last, last_cpu = time.perf_counter(), time.process_time()
                waits_until = last + QUIET_S
                if not first:
                    first, first_cpu = last, last_cpu
                else:
                    found += count  # the first record only starts the clock
        return Read(found, max(last - first, 1e-9), last_cpu - first_cpu)


async def observe(bootstrap: str, topic: str, warm_up_s: float) -> Timed:
    """Returns the milliseconds from the due time of each record until its arrival, up to the last
    record of each partition.

    Records that were due within `warm_up_s` of the first one do not count.
    """
    found: list[float] = []
    async with Consumer(bootstrap) as consumer:
        active = set(await _at_end(consumer, topic))
        counts_from = 0.0
        while active:
            records = await consumer.poll(int(GIVE_UP_S * 1000))
            now = time.perf_counter()
            if not records:
                raise TimeoutError(
                    f"no record for {GIVE_UP_S:g} s; {len(active)} partitions have not ended"
                )
            for record in records:
                assert record.value is not None
                (due,) = STAMP.unpack_from(record.value)
                if due == LAST:
                    active.discard(TopicPartition(record.topic, record.partition))
                elif due != NOT_TIMED:
                    counts_from = counts_from or due + warm_up_s
                    if due >= counts_from:
                        found.append((now - due) * 1000)
    return timed(sorted(found))


async def _at_end(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """Assigns the topic at its end: records that are written afterwards are read."""
    partitions = await consumer.partitions_of(topic)
    ends = await consumer.end_offsets(partitions)
    consumer.assign(partitions)
    for partition, end in ends.items():
        await consumer.seek(partition, end)
    return partitions


async def _poll(consumer: Consumer, *, one_by_one: bool) -> int:
    if not one_by_one:
        return sum(batch.record_count for batch in await consumer.poll_batches(POLL_MS))
    count = 0
    for record in await consumer.poll(POLL_MS, max_records=5_000):
        assert record.value is not None
        count += 1
    return count
