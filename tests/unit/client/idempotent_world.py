"""An idempotent producer and a cluster in memory, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tidelog.client import Consumer, Producer
from tidelog.v1 import broker_pb2
from unit.client.fake_broker import FakeCluster, FakePartition
from unit.client.memory_connections import MemoryConnections
from unit.metadata.virtual_time import run, virtual_clock

# Each record becomes a batch of its own, which is sent at once.
SINGLY: dict[str, Any] = {"batch_bytes": 1, "linger_ms": 0}


class World:
    """Two brokers; topics "sea" and "bay" have one partition each, led by broker 0."""

    def __init__(self) -> None:
        self.cluster = FakeCluster().in_memory(2)
        self.cluster.create("sea", [0])
        self.cluster.create("bay", [0])
        self.broker = self.cluster.brokers[0]

    @property
    def sea(self) -> FakePartition:
        return self.cluster.partition("sea")

    def producer(self, **settings: Any) -> Producer:
        return Producer(
            self.cluster.bootstrap(),
            connections=MemoryConnections(self.cluster),
            clock=virtual_clock(),
            rng=random.Random(1),
            **SINGLY | settings,
        )

    def consumer(self, **settings: Any) -> Consumer:
        return Consumer(
            self.cluster.bootstrap(),
            connections=MemoryConnections(self.cluster),
            clock=virtual_clock(),
            rng=random.Random(2),
            **settings,
        )

    def script(self, *what: Any) -> None:
        """Sets the faults of the next requests to the leader."""
        self.broker.script["produce"].extend(what)

    def sequences(self) -> list[tuple[int, int]]:
        """Producer id and sequence of each batch in the log."""
        return [(b.header.producer_id, b.header.base_sequence) for b in self.sea.batches]

    def asked(self) -> list[tuple[int, int]]:
        """Producer id and sequence of each batch that the leader has ever received."""
        requests: list[broker_pb2.ProduceRequest] = self.broker.seen["produce"]  # type: ignore[assignment]
        return [
            (batch.header.producer_id, batch.header.base_sequence)
            for request in requests
            for partition in request.partitions
            if partition.topic == "sea"
            for batch in partition.batches
        ]


async def warm(producer: Producer) -> None:
    """Waits until the producer has its id, so that records are sent at once from now on."""
    await (await producer.send("bay", b""))


async def milliseconds(ms: int) -> None:
    await asyncio.sleep(ms / 1000)


def story(scenario: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    """Makes a test of a coroutine, which gets a fresh world and runs to its end."""

    def test() -> None:
        async def main() -> None:
            await scenario(World())

        run(main())

    test.__name__ = scenario.__name__
    return test
