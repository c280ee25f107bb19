"""A cluster that runs beside synchronous tests, with the requests that they make."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from integration.bit_flips import flip_a_bit
from integration.clusters import running_cluster
from tidelog.client import SyncAdmin, SyncConsumer, SyncProducer
from tidelog.log_dump import segment_paths
from tidelog.model import Codec, Record
from tidelog_runtime.demo.replicas import find_replica
from tidelog_runtime.local.cluster import LocalCluster

_Result = TypeVar("_Result")
# Generous, for a busy machine: each wait usually takes seconds.
READY_TIMEOUT_S = 180.0
QUERY_TIMEOUT_S = 300


@dataclass
class Running:
    local: LocalCluster
    loop: asyncio.AbstractEventLoop
    names: Iterator[int] = field(default_factory=itertools.count)

    @property
    def bootstrap(self) -> str:
        return self.local.bootstrap

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(READY_TIMEOUT_S)

    def new_topic(self, partitions: int = 2, **config: str) -> str:
        topic = f"sea-{next(self.names)}"
        self.create(topic, partitions, replicas=3, **config)
        return topic

    def create(self, topic: str, partitions: int, *, replicas: int = 3, **config: str) -> None:
        with SyncAdmin(self.bootstrap) as admin:
            # The records of tests have old timestamps.
            admin.create_topic(topic, partitions, replicas, {"retention_ms": "-1", **config})

    def fill(
        self, topic: str, partition: int, values: list[bytes], codec: Codec = Codec.NONE
    ) -> None:
        with SyncProducer(self.bootstrap, codec=codec) as producer:
            producer.send_many(topic, values, partition=partition)

    def records(self, topic: str) -> list[Record]:
        """All records, by partition in their order."""
        with SyncConsumer(self.bootstrap) as consumer:
            partitions = consumer.assign_topic(topic)
            ends = consumer.end_offsets(partitions)
            found: list[Record] = []
            while any((consumer.position(p) or 0) < end for p, end in ends.items()):
                found += consumer.poll(1000, 100_000)
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def leader_of(self, topic: str, partition: int) -> int:
        with SyncAdmin(self.bootstrap) as admin:
            return admin.describe_topic(topic).partitions[partition].leader

    def leader_epoch_of(self, topic: str, partition: int) -> int:
        with SyncAdmin(self.bootstrap) as admin:
            return admin.describe_topic(topic).partitions[partition].leader_epoch

    def cut(self, topic: str, partition: int, cut_bytes: int) -> None:
        """Simulates a power failure of the only replica's machine: the end of its log had not
        reached the disk."""
        with SyncAdmin(self.bootstrap) as admin:
            described = admin.describe_topic(topic)
        [broker_id] = described.partitions[partition].replicas
        self.run(self.local.kill(broker_id))
        [log] = (
            path
            for path in self.local.broker_data_dir(broker_id).rglob("*.log")
            if described.topic_id in str(path.parent)
        )
        os.truncate(log, log.stat().st_size - cut_bytes)
        self.restart(broker_id)

    def flip_a_bit(self, topic: str, partition: int, batch: int | None = None) -> int:
        """Flips a bit in the only replica, as `bit_flips` does. At the next read the leader finds
        the damage and seals the batch."""
        return flip_a_bit(self.replica(topic, partition), batch)

    def replica(self, topic: str, partition: int) -> Path:
        """The directory of the only replica."""
        with SyncAdmin(self.bootstrap) as admin:
            described = admin.describe_topic(topic)
        [broker_id] = described.partitions[partition].replicas
        data_dir = self.local.broker_data_dir(broker_id)
        return find_replica(data_dir, topic, partition, described.topic_id)

    def segment(self, topic: str, partition: int) -> Path:
        """The only segment of the only replica."""
        [found] = segment_paths(self.replica(topic, partition))
        return found

    def rewrite(self, topic: str, partition: int, beginning: bytes) -> None:
        """Replaces the bytes of the segment of the only replica while its broker is down."""
        segment = self.segment(topic, partition)
        broker_id = self.leader_of(topic, partition)
        self.run(self.local.kill(broker_id))
        with segment.open("r+b") as file:
            file.write(beginning)
        self.restart(broker_id)

    def restart(self, broker_id: int) -> None:
        async def restart() -> None:
            if not self.local.broker_process(broker_id).running:
                self.local.start_broker(broker_id)
            await self.local.ready()

        self.run(restart())

    def read(self, spark: SparkSession, topic: str, **options: str) -> DataFrame:
        frame: DataFrame = self.reader(spark.read, topic, **options).load()
        return frame

    def stream(self, spark: SparkSession, topic: str, **options: str) -> DataFrame:
        frame: DataFrame = self.reader(spark.readStream, topic, **options).load()
        return frame

    def reader(self, reader: DataFrameReader | DataStreamReader, topic: str, **options: str) -> Any:
        return (
            reader.format("tidelog")
            .option("bootstrap.servers", self.bootstrap)
            .options(**{"subscribe": topic, **options})
        )


@contextmanager
def running(
    directory: Path,
    start: Callable[[Path], AbstractAsyncContextManager[LocalCluster]] = running_cluster,
) -> Iterator[Running]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    started = start(directory)
    try:
        local = asyncio.run_coroutine_threadsafe(started.__aenter__(), loop).result()
        try:
            yield Running(local, loop)
        finally:
            asyncio.run_coroutine_threadsafe(started.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
