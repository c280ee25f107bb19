"""The pieces of work, as each peer does them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from bench.kafka.cluster import KafkaCluster
from bench.peers import kafka_clients, kafka_tools, nats_clients
from bench.peers.kafka_tools import ToolError
from bench.peers.nats_cluster import NatsCluster
from bench.peers.settings import (
    BATCHES,
    KAFKA,
    KAFKA_TOOLS,
    NATS,
    ONE_IN_FLIGHT,
    PRODUCE_ALL,
    PRODUCE_ONE,
    RECORDS,
    SPEED,
    TIDELOG,
    TO_CONSUMER,
    Figures,
    Settings,
)
from bench.percentiles import percentiles
from bench.suite import consumers, producers
from bench.suite.bed import Bed
from bench.suite.consumers import Read, observe
from bench.suite.latency import SETTLE_S
from bench.suite.matrix import AT_ONCE_BY_LEADER, USUAL, Case
from bench.suite.producers import Produced
from bench.worker import Worker

_BACKLOG, _SCRATCH = "backlog", "scratch"

Do = Callable[[], Awaitable[Figures]]


class Work(NamedTuple):
    name: str
    by_peer: Mapping[str, Do]


class Peers:
    """Three clusters that run at the same time, and one process for clients, which does the pieces
    of work in turn."""

    def __init__(
        self, bed: Bed, kafka: KafkaCluster, nats: NatsCluster, worker: Worker, settings: Settings
    ) -> None:
        self._bed = bed
        self._kafka = kafka
        self._nats = nats
        self._worker = worker
        self._settings = settings
        self._backlog: dict[str, int] = {}
        self._tidelog_backlog = ""

    def works(self) -> Sequence[Work]:
        return (
            Work(PRODUCE_ALL, self._producing(USUAL) | {NATS: self._nats_produce}),
            Work(PRODUCE_ONE, self._producing(AT_ONCE_BY_LEADER)),
            Work(
                ONE_IN_FLIGHT,
                {
                    TIDELOG: self._tidelog_one_in_flight,
                    KAFKA: self._kafka_one_in_flight,
                    NATS: self._nats_one_in_flight,
                },
            ),
            Work(
                TO_CONSUMER,
                {TIDELOG: self._tidelog_to_consumer, KAFKA_TOOLS: self._kafka_end_to_end},
            ),
            Work(
                RECORDS,
                {TIDELOG: self._tidelog_records, KAFKA: self._kafka_records, NATS: self._nats_read},
            ),
            Work(BATCHES, {TIDELOG: self._tidelog_batches, KAFKA_TOOLS: self._kafka_consume_tool}),
        )

    async def fill(self, tidelog_backlog: str) -> None:
        """Fills the topics that consumers read and producers write to."""
        self._tidelog_backlog = tidelog_backlog
        size = self._settings.read_mb * 1_000_000
        for topic in (_BACKLOG, _SCRATCH):
            await self._kafka.create_topic(topic, USUAL.partitions)
            await nats_clients.create(self._nats.urls, topic, USUAL.partitions)
        call = self._worker.call
        self._backlog = {
            TIDELOG: await call(
                producers.fill,
                self._bed.bootstrap,
                tidelog_backlog,
                USUAL.partitions,
                USUAL.record_bytes,
                size,
            ),
            KAFKA: await call(kafka_clients.fill, self._kafka.bootstrap, _BACKLOG, USUAL, size),
            NATS: await call(nats_clients.fill, self._nats.urls, _BACKLOG, USUAL, size),
        }
        await self._kafka.in_sync()

    async def ceiling(self) -> float:
        return await self._bed.ceiling(self._settings.ceiling_s)

    # Producing.

    def _producing(self, case: Case) -> dict[str, Do]:
        async def tidelog() -> Figures:
            async with self._bed.topic(case.partitions) as topic:
                return _produced(
                    await self._worker.call(
                        producers.produce,
                        self._bed.bootstrap,
                        topic,
                        case,
                        self._settings.produce_s,
                    )
                )

        async def kafka() -> Figures:
            return _produced(
                await self._worker.call(
                    kafka_clients.produce,
                    self._kafka.bootstrap,
                    _SCRATCH,
                    case,
                    self._settings.produce_s,
                )
            )

        async def tool() -> Figures:
            output = await self._tool(
                kafka_tools.PRODUCER,
                kafka_tools.producing(
                    self._kafka.bootstrap,
                    _SCRATCH,
                    self._settings.tool_records,
                    case.record_bytes,
                    kafka_clients.producer_settings(case.acks, kafka_clients.LINGER_MS),
                    self._settings.tool_warm_up,
                ),
            )
            return {SPEED: kafka_tools.records_per_second(output)}

        return {TIDELOG: tidelog, KAFKA: kafka, KAFKA_TOOLS: tool}

    async def _nats_produce(self) -> Figures:
        return _produced(
            await self._worker.call(
                nats_clients.produce, self._nats.urls, _SCRATCH, USUAL, self._settings.produce_s
            )
        )

    # One record in flight.

    async def _tidelog_one_in_flight(self) -> Figures:
        async with self._bed.topic(USUAL.partitions) as topic:
            return percentiles(
                await self._worker.call(
                    producers.one_in_flight,
                    self._bed.bootstrap,
                    topic,
                    USUAL.partitions,
                    USUAL.record_bytes,
                    self._settings.one_in_flight_s,
                )
            )

    async def _kafka_one_in_flight(self) -> Figures:
        return percentiles(
            await self._worker.call(
                kafka_clients.one_in_flight,
                self._kafka.bootstrap,
                _SCRATCH,
                USUAL,
                self._settings.one_in_flight_s,
            )
        )

    async def _nats_one_in_flight(self) -> Figures:
        return percentiles(
            await self._worker.call(
                nats_clients.one_in_flight,
                self._nats.urls,
                _SCRATCH,
                USUAL,
                self._settings.one_in_flight_s,
            )
        )

    async def _tidelog_to_consumer(self) -> Figures:
        async with self._bed.topic(1) as topic:
            observing = asyncio.create_task(
                self._bed.consumer.call(observe, self._bed.bootstrap, topic, 0.2)
            )
            await asyncio.sleep(SETTLE_S)
            await self._worker.call(
                producers.one_in_flight,
                self._bed.bootstrap,
                topic,
                1,
                USUAL.record_bytes,
                self._settings.one_in_flight_s,
            )
            return (await observing).p

    async def _kafka_end_to_end(self) -> Figures:
        output = await self._tool(
            kafka_tools.END_TO_END,
            kafka_tools.end_to_end(
                self._kafka.bootstrap, _SCRATCH, self._settings.end_to_end, USUAL.record_bytes
            ),
        )
        return dict(zip(("p50", "p99", "p99.9"), kafka_tools.latencies(output), strict=True))

    # Consuming a backlog.

    async def _tidelog_records(self) -> Figures:
        return _read(await self._tidelog_read(one_by_one=True))

    async def _tidelog_batches(self) -> Figures:
        return _read(await self._tidelog_read(one_by_one=False))

    async def _tidelog_read(self, *, one_by_one: bool) -> Read:
        return await self._worker.call(
            consumers.read_all,
            self._bed.bootstrap,
            self._tidelog_backlog,
            self._backlog[TIDELOG],
            one_by_one=one_by_one,
        )

    async def _kafka_records(self) -> Figures:
        return _read(
            await self._worker.call(
                kafka_clients.read_all,
                self._kafka.bootstrap,
                _BACKLOG,
                USUAL.partitions,
                self._backlog[KAFKA],
            )
        )

    async def _kafka_consume_tool(self) -> Figures:
        records = self._backlog[KAFKA]
        output = await self._tool(
            kafka_tools.CONSUMER,
            kafka_tools.consuming(self._kafka.bootstrap, _BACKLOG, records),
        )
        return {SPEED: kafka_tools.fetched_per_second(output)}

    async def _nats_read(self) -> Figures:
        return _read(
            await self._worker.call(
                nats_clients.read_all,
                self._nats.urls,
                _BACKLOG,
                USUAL.partitions,
                self._backlog[NATS],
            )
        )

    async def _tool(self, name: str, arguments: Sequence[str]) -> str:
        """Returns the output of a tool. Raises `ToolError`."""
        status, output = await self._kafka.tool(name, *arguments)
        if status != 0:
            raise ToolError(f"{name} ended with status {status}:\n{output}")
        return output


def _produced(produced: Produced) -> Figures:
    return {
        SPEED: produced.records / produced.seconds,
        "MB/s": produced.mb_per_second,
        "failed": float(produced.failed),
    }


def _read(read: Read) -> Figures:
    return {SPEED: read.records_per_second}
