"""A cluster of real processes with a producing and a consuming process beside it, and the ceiling
of all comparisons."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.noop import MESSAGE_BYTES, ceiling_mb_per_second, noop_server
from bench.process_figures import cpu_seconds, rss_mb
from bench.worker import Worker
from tidelog.client import Admin
from tidelog_runtime.local.cluster import LocalCluster

CREATION_TIMEOUT_MS = 120_000
READY_TIMEOUT_S = 120.0
# The retention of topics that are written to, for all partitions of a broker together: their
# records are not read, and the disk is finite.
KEPT_BYTES = 1 << 30
MAX_SEGMENT_BYTES = 64 << 20
MIN_SEGMENT_BYTES = 4 << 20
# Old segments and deleted topics are removed soon.
BROKER_CONFIG = {"retention_check_interval_ms": 5_000, "stray_retention_ms": 1_000}


class Bed:
    def __init__(
        self, cluster: LocalCluster, producer: Worker, consumer: Worker, noop_address: str
    ) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap
        self.producer = producer
        self.consumer = consumer
        self._noop_address = noop_address
        self._topics = 0

    async def ceiling(self, seconds: float, message_bytes: int = MESSAGE_BYTES) -> float:
        """Returns the ceiling in 10^6 bytes per second, measured by the process that produces."""
        return await self.producer.call(
            ceiling_mb_per_second, self._noop_address, message_bytes, seconds
        )

    @asynccontextmanager
    async def topic(
        self,
        partitions: int,
        factor: int = 3,
        config: Mapping[str, str] | None = None,
        *,
        keeps_all: bool = False,
    ) -> AsyncIterator[str]:
        """Yields a new topic, which is deleted afterwards."""
        self._topics += 1
        name = f"bench-{self._topics}"
        kept = {} if keeps_all else retention(partitions)
        async with Admin(self.bootstrap) as admin:
            await admin.create_topic(
                name, partitions, factor, {**kept, **(config or {})}, CREATION_TIMEOUT_MS
            )
            try:
                yield name
            finally:
                await admin.delete_topic(name)

    def broker_pids(self) -> list[int]:
        return [b.pid for b in self.cluster.describe().brokers if b.pid is not None]

    def brokers_cpu_s(self) -> float:
        return sum(map(cpu_seconds, self.broker_pids()))

    def most_memory_mb(self) -> float:
        return max(rss_mb(pid, "VmHWM") for pid in self.broker_pids())

    async def forget_pages(self) -> None:
        """Writes the brokers' data to the disk, and drops them from the page cache."""
        directories = [self.cluster.broker_data_dir(b) for b in self.cluster.broker_ids]
        for directory in directories:
            await asyncio.to_thread(_forget_pages, directory)


@asynccontextmanager
async def bed(directory: Path) -> AsyncIterator[Bed]:
    cluster = LocalCluster(directory, usual_ports=False, broker_config=BROKER_CONFIG)
    async with AsyncExitStack() as stack:
        await cluster.start()
        stack.push_async_callback(cluster.stop)
        producer = await stack.enter_async_context(Worker("producer"))
        consumer = await stack.enter_async_context(Worker("consumer"))
        address = await stack.enter_async_context(noop_server())
        await cluster.ready(READY_TIMEOUT_S)
        yield Bed(cluster, producer, consumer, address)


def retention(partitions: int) -> dict[str, str]:
    """Returns the retention of a topic with this number of partitions."""
    kept = KEPT_BYTES // partitions
    segment = min(MAX_SEGMENT_BYTES, max(MIN_SEGMENT_BYTES, kept // 4))
    return {"retention_bytes": str(kept), "segment_bytes": str(segment)}


def _forget_pages(directory: Path) -> None:
    """Drops the files of a directory from the page cache. Brokers may delete files meanwhile."""
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                descriptor = os.open(Path(parent, name), os.O_RDONLY)
            except FileNotFoundError:
                continue
            try:
                os.fdatasync(descriptor)  # Only pages that are on the disk can be dropped.
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
