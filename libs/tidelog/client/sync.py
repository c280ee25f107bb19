"""The synchronous client, for scripts: each object runs an event loop in a thread.

    with SyncProducer("127.0.0.1:7500") as producer:
        print(producer.send("sea", b"calm", key=b"north"))

    with SyncConsumer("127.0.0.1:7500") as consumer:
        consumer.assign_topic("sea")
        for record in consumer.poll(timeout_ms=1000):
            print(record.value)

Arguments and errors are those of `Producer`, `Consumer` and `Admin`. Several threads may call one
object; `BackgroundClient` documents its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from tidelog.admin_messages import CreatedTopic, RecoveredPartition
from tidelog.client.admin import Admin
from tidelog.client.background import BackgroundClient
from tidelog.client.consumer import (
    DEFAULT_MAX_BATCHES,
    DEFAULT_MAX_RECORDS,
    DEFAULT_POLL_TIMEOUT_MS,
    Consumer,
)
from tidelog.client.controller_calls import DEFAULT_TIMEOUT_MS
from tidelog.client.delivery import BatchReport, Delivery
from tidelog.client.descriptions import ClusterDescription, TopicDescription
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.client.producer import Producer
from tidelog.client.producers_codec import ProducerPosition
from tidelog.client.sequences import Identity
from tidelog.model import OffsetPosition, Record, TopicPartition
from tidelog.record_batch import Headers


class SyncProducer(BackgroundClient[Producer]):
    def __init__(self, bootstrap: str | Sequence[str], **settings: Any) -> None:
        super().__init__(lambda: Producer(bootstrap, **settings))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The caller of an interrupted block does not wait for a delivery timeout.
        self.close(flush=kind is None or issubclass(kind, Exception))

    def close(self, *, flush: bool = True) -> None:
        """Delivers the records that other threads are sending, until their delivery timeout at
        most. Without `flush` these fail with CLIENT_CLOSED."""
        self._close(lambda producer: producer.close(flush=flush))

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Waits until the record is delivered. `send_many` is faster for many records."""

        async def work() -> Delivery:
            return await (
                await self._client.send(
                    topic,
                    value,
                    key,
                    partition=partition,
                    headers=headers,
                    timestamp_ms=timestamp_ms,
                )
            )

        return self._run(work())

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        *,
        partition: int | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
    ) -> list[BatchReport]:
        """Waits until all records are delivered."""

        async def work() -> list[BatchReport]:
            return await (
                await self._client.send_many(
                    topic, values, keys, partition=partition, timestamps_ms=timestamps_ms
                )
            )

        return self._run(work())


class SyncConsumer(BackgroundClient[Consumer]):
    def __init__(self, bootstrap: str | Sequence[str], **settings: Any) -> None:
        super().__init__(lambda: Consumer(bootstrap, **settings))

    def assign(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        *,
        start: OffsetPosition | str = OffsetPosition.EARLIEST,
    ) -> None:
        async def work() -> None:
            self._client.assign(partitions, start=start)

        self._run(work())

    def assign_topic(
        self, topic: str, *, start: OffsetPosition | str = OffsetPosition.EARLIEST
    ) -> list[TopicPartition]:
        return self._run(self._client.assign_topic(topic, start=start))

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int) -> None:
        self._run(self._client.seek(partition, offset))

    def seek_to_beginning(self) -> None:
        self._run(self._client.seek_to_beginning())

    def seek_to_end(self) -> None:
        self._run(self._client.seek_to_end())

    def seek_to_time(self, timestamp_ms: int) -> None:
        self._run(self._client.seek_to_time(timestamp_ms))

    def position(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        async def work() -> int | None:
            return self._client.position(partition)

        return self._run(work())

    def end_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        return self._run(self._client.end_offsets(partitions))

    def poll(
        self,
        timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS,
        max_records: int = DEFAULT_MAX_RECORDS,
    ) -> list[Record]:
        return self._run(self._client.poll(timeout_ms, max_records))

    def poll_batches(
        self,
        timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS,
        max_batches: int = DEFAULT_MAX_BATCHES,
    ) -> list[FetchedBatch]:
        return self._run(self._client.poll_batches(timeout_ms, max_batches))

    def __iter__(self) -> Iterator[Record]:
        """Waits for records without end. Raises CLIENT_CLOSED once the consumer is closed, and
        INVALID_REQUEST if nothing is assigned."""
        self._check()
        return self._records()

    def _records(self) -> Iterator[Record]:
        while True:
            yield from self.poll()


class SyncAdmin(BackgroundClient[Admin]):
    def __init__(self, bootstrap: str | Sequence[str], **settings: Any) -> None:
        super().__init__(lambda: Admin(bootstrap, **settings))

    def create_topic(
        self,
        topic: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> CreatedTopic:
        return self._run(
            self._client.create_topic(topic, partitions, replication_factor, config, timeout_ms)
        )

    def delete_topic(self, topic: str, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> tuple[int, ...]:
        return self._run(self._client.delete_topic(topic, timeout_ms))

    def recover_partitions(
        self,
        topic: str,
        partitions: Sequence[int] = (),
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        from_live_replicas: bool = False,
    ) -> list[RecoveredPartition]:
        return self._run(
            self._client.recover_partitions(
                topic, partitions, timeout_ms, from_live_replicas=from_live_replicas
            )
        )

    def describe_cluster(self) -> ClusterDescription:
        return self._run(self._client.describe_cluster())

    def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        return self._run(self._client.list_topics(internal=internal))

    def describe_topic(self, topic: str) -> TopicDescription:
        return self._run(self._client.describe_topic(topic))

    def init_producer_id(self, name: str = "", timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Identity:
        return self._run(self._client.init_producer_id(name, timeout_ms))

    def describe_producers(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        producer_ids: Sequence[int] = (),
        *,
        fence: Identity | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> dict[int, list[ProducerPosition]]:
        return self._run(
            self._client.describe_producers(
                topic, partitions, producer_ids, fence=fence, timeout_ms=timeout_ms
            )
        )
