"""How long a consumer blocks its caller's event loop while it decodes one large batch.

Measured in the loop itself: a task that ticks each millisecond records how late it was."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from bench.pauses import requests
from bench.pauses.run import ALL, Pause, Selection, answer_of
from tidelog.client import Consumer
from tidelog.model import Batch, Codec
from tidelog.record_batch import encode
from tidelog.rpc.channels import open_channel
from tidelog_runtime.local.cluster import LocalCluster

_RECORDS = 100_000
_TICK_S = 0.001


class Ticks:
    """Ticks of an event loop.

    - `longest_s`, `longest_own_s`: the longest delay of one, and the most processor time that this
      process used in one.
    """

    def __init__(self) -> None:
        self.longest_s = self.longest_own_s = 0.0

    async def __aenter__(self) -> Ticks:
        self._ticking = asyncio.create_task(self._tick())
        await asyncio.sleep(_TICK_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(_TICK_S)
        self._ticking.cancel()

    async def _tick(self) -> None:
        while True:
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(_TICK_S)
            late = time.monotonic() - began - _TICK_S
            self.longest_s = max(self.longest_s, late)
            self.longest_own_s = max(self.longest_own_s, min(late, time.process_time() - used))


def small_records(codec: Codec) -> Batch:
    """Returns as many records as a batch may have by default, 16 MiB after decompression."""
    values = [b"%0160d" % number for number in range(_RECORDS)]
    return encode(values, [b"k"] * _RECORDS, timestamps_ms=requests.now_ms(), codec=codec)


BATCHES: dict[str, Callable[[], Batch]] = {
    "100,000 records of 160 bytes, gzip": lambda: small_records(Codec.GZIP),
    "100,000 records of 160 bytes, zstd": lambda: small_records(Codec.ZSTD),
    "100,000 records of 160 bytes, lz4": lambda: small_records(Codec.LZ4),
    "64 MiB decoded, gzip": lambda: requests.zeros(Codec.GZIP),
    "100,000 headers": requests.many_headers,
}


async def of_consumer(
    cluster: LocalCluster, rounds: int, selection: Selection = ALL
) -> AsyncIterator[Pause]:
    """Measures each batch, in a topic that has large ones.

    Objects that this process held before are excluded from garbage collection: a collection takes
    30 to 60 ms here, and in an application as long as its own objects make it."""
    gc.collect()
    gc.freeze()
    try:
        async for pause in _of_batches(cluster, rounds, selection):
            yield pause
    finally:
        gc.unfreeze()


async def _of_batches(
    cluster: LocalCluster, rounds: int, selection: Selection
) -> AsyncIterator[Pause]:
    method = "/tidelog.v1.BrokerService/Produce"
    address = cluster.bootstrap.split(",")[0]
    async with open_channel(address) as channel, Consumer(cluster.bootstrap) as consumer:
        (partition,) = await consumer.assign_topic(requests.LARGE_TOPIC)
        for name, make in BATCHES.items():
            if not selection.has("consumer", name):
                continue
            end = (await consumer.end_offsets([partition]))[partition]
            batch = make()
            case: Any = requests.Case(name, method, requests.produce(requests.LARGE_TOPIC, batch))
            answer, seconds, own = await answer_of(channel, case), [], []
            for _ in range(rounds):
                async with Ticks() as ticks:
                    await _read(consumer, partition, end, batch.header.record_count)
                seconds.append(ticks.longest_s)
                own.append(ticks.longest_own_s)
            yield Pause("consumer", name, tuple(seconds), answer, tuple(own))


async def _read(consumer: Consumer, partition: Any, offset: int, count: int) -> None:
    await consumer.seek(partition, offset)
    while count > 0:
        records = await consumer.poll()
        assert records, f"nothing at {offset}"
        count -= len(records)
