"""A live cluster with its gateway, under a constant write load."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx

from tidelog.client import Admin, Delivery, Producer
from tidelog.errors import TidelogError
from tidelog_runtime.local.cluster import LocalCluster

REPLICATION_FACTOR = 3
READY_TIMEOUT_S = 120.0
CREATION_TIMEOUT_MS = 120_000
SETTLE_TIMEOUT_S = 180.0
POLL_S = 0.2
REQUEST_TIMEOUT_S = 60.0
OVERVIEW = "/v1/cluster/overview"


class Scene:
    """A running cluster. `topics`: numbers of partitions by name."""

    def __init__(
        self, cluster: LocalCluster, rest: httpx.AsyncClient, topics: Mapping[str, int]
    ) -> None:
        self.cluster = cluster
        self.rest = rest
        self.topics = topics

    @property
    def url(self) -> str:
        return f"http://{self.cluster.gateway_address}"

    @property
    def partitions(self) -> int:
        return sum(self.topics.values())

    async def create_topics(self) -> None:
        """Returns once the gateway reports every partition as healthy."""
        async with Admin(self.cluster.bootstrap, requested_by="bench") as admin:
            for topic, partitions in self.topics.items():
                await admin.create_topic(
                    topic, partitions, REPLICATION_FACTOR, timeout_ms=CREATION_TIMEOUT_MS
                )
        await self.until_healthy()

    async def until_healthy(self) -> None:
        """Waits until every partition is healthy. Raises `TimeoutError`."""
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            while True:
                overview = (await self.rest.get(OVERVIEW)).raise_for_status().json()
                if (
                    overview["health"] == "ok"
                    and overview["counts"]["partitions"] >= self.partitions
                ):
                    return
                await asyncio.sleep(POLL_S)

    @asynccontextmanager
    async def written_to(self, records_per_second: float) -> AsyncIterator[None]:
        writing = asyncio.create_task(self._write(1 / records_per_second))
        try:
            yield
        finally:
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing

    async def _write(self, pause_s: float) -> None:
        """Writes to every partition in turn. Failed writes are ignored: brokers may be killed."""
        places = [(topic, p) for topic, count in self.topics.items() for p in range(count)]
        async with Producer(self.cluster.bootstrap) as producer:
            for number, (topic, partition) in enumerate(itertools.cycle(places)):
                value = json.dumps({"number": number, "tide": ("ebb", "flow")[number % 2]})
                key = f"buoy-{number % 997}"
                with suppress(TidelogError):
                    delivery = await producer.send(
                        topic, value.encode(), key=key.encode(), partition=partition
                    )
                    delivery.add_done_callback(_passed)
                await asyncio.sleep(pause_s)


def _passed(delivery: asyncio.Future[Delivery]) -> None:
    if not delivery.cancelled():
        delivery.exception()  # no caller needs its error


@asynccontextmanager
async def running_scene(
    directory: Path,
    topics: Mapping[str, int],
    *,
    brokers: int,
) -> AsyncIterator[Scene]:
    cluster = LocalCluster(
        directory,
        brokers=brokers,
        usual_ports=False,
        gateway=True,
    )
    await cluster.start()
    try:
        await cluster.ready(READY_TIMEOUT_S)
        address = f"http://{cluster.gateway_address}"
        async with httpx.AsyncClient(base_url=address, timeout=REQUEST_TIMEOUT_S) as rest:
            scene = Scene(cluster, rest, topics)
            await scene.create_topics()
            yield scene
    finally:
        await cluster.stop()
