"""The cost of a client call itself: against a broker in the same process, without sockets.

    PYTHONPATH=tests python -m bench.client_calls
    PYTHONPATH=OTHER/libs:tests python -m bench.client_calls   # the client of another checkout

Prints microseconds of CPU time for each record or call, the best of ROUNDS rounds. Compare two
checkouts in turn, on an idle machine."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from tidelog.client import Consumer, Producer
from unit.client.fake_broker import FakeCluster
from unit.client.memory_connections import MemoryConnections

ROUNDS = 5
RECORDS = 50_000
CALLS = 5_000
# The records of a batch that `send_many` makes here.
BATCH_BYTES = 64 << 10
VALUE = b"x" * 100


class Stopwatch:
    """The best time of each measured piece of work."""

    def __init__(self) -> None:
        self.best_us: dict[str, float] = {}

    @contextmanager
    def measure(self, name: str, count: int) -> Iterator[None]:
        begun = time.process_time()
        yield
        took_us = (time.process_time() - begun) * 1e6 / count
        self.best_us[name] = min(took_us, self.best_us.get(name, took_us))


def new_cluster() -> FakeCluster:
    cluster = FakeCluster().in_memory()
    cluster.create("sea", [0])
    return cluster


async def sending(stopwatch: Stopwatch) -> FakeCluster:
    cluster = new_cluster()
    connections = MemoryConnections(cluster)
    async with Producer(
        cluster.bootstrap(), connections=connections, batch_bytes=BATCH_BYTES
    ) as producer:
        await (await producer.send("sea", VALUE))
        with stopwatch.measure("send, a record", RECORDS):
            for _ in range(RECORDS):
                await producer.send("sea", VALUE)
            await producer.flush()
        with stopwatch.measure("flush with nothing to do", CALLS):
            for _ in range(CALLS):
                await producer.flush()
    cluster = new_cluster()
    async with Producer(cluster.bootstrap(), connections=MemoryConnections(cluster)) as producer:
        with stopwatch.measure("send_many, a record", RECORDS):
            await (await producer.send_many("sea", [VALUE] * RECORDS))
    return cluster


async def by_poll(consumer: Consumer) -> None:
    read = 0
    while read < RECORDS:
        read += len(await consumer.poll())


async def by_batches(consumer: Consumer) -> None:
    read = 0
    while read < RECORDS:
        read += sum(batch.record_count for batch in await consumer.poll_batches())


async def by_iteration(consumer: Consumer) -> None:
    read = 0
    async for _ in consumer:
        read += 1
        if read == RECORDS:
            return


async def reading(stopwatch: Stopwatch, cluster: FakeCluster) -> None:
    ways: dict[str, Callable[[Consumer], Awaitable[None]]] = {
        "poll, a record": by_poll,
        "poll_batches, a record": by_batches,
        "async for, a record": by_iteration,
    }
    for name, read in ways.items():
        connections = MemoryConnections(cluster)
        async with Consumer(cluster.bootstrap(), connections=connections) as consumer:
            await consumer.assign_topic("sea")
            # Everything is prefetched.
            await asyncio.sleep(0.3)
            with stopwatch.measure(name, RECORDS):
                await read(consumer)
            with stopwatch.measure("poll(timeout_ms=0) of nothing", CALLS):
                for _ in range(CALLS):
                    await consumer.poll(timeout_ms=0)


async def main() -> None:
    stopwatch = Stopwatch()
    for _ in range(ROUNDS):
        await reading(stopwatch, await sending(stopwatch))
    for name, took_us in stopwatch.best_us.items():
        sys.stdout.write(f"{name:32} {took_us:8.2f} µs\n")


if __name__ == "__main__":
    asyncio.run(main())
