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

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

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
from tidelog.client.handover import Handover
from tidelog.client.loop_thread import Call
from tidelog.client.producer import Producer
from tidelog.client.producers_codec import ProducerPosition
from tidelog.client.sequences import Identity
from tidelog.model import OffsetPosition, Record, TopicPartition
from tidelog.record_batch import Headers

_Result = TypeVar("_Result")


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

    def _close_at_exit(self) -> None:
        # Records that are not delivered fail, and are reported.
        self.close(flush=False)

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
        def make() -> Consumer:
            consumer = Consumer(bootstrap, **settings)
            consumer._state.taking.lending.lends = True
            return consumer

        # Records that iterators return, one by one.
        self._iterated = Handover()
        super().__init__(make)

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
        """A poll that a signal handler interrupts has consumed nothing."""
        return self._consume(lambda consumer: consumer.poll(timeout_ms, max_records))

    def poll_batches(
        self,
        timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS,
        max_batches: int = DEFAULT_MAX_BATCHES,
    ) -> list[FetchedBatch]:
        """A poll that a signal handler interrupts has consumed nothing."""
        return self._consume(lambda consumer: consumer.poll_batches(timeout_ms, max_batches))

    def ask(self, request: Callable[[Consumer], Coroutine[Any, Any, _Result]]) -> _Result:
        """As for other clients. The request is repeated if its result was records, and another call
        took them back before this one returned them."""
        return self._consume(request)

    def __iter__(self) -> Iterator[Record]:
        """Waits for records without end. Each record moves the position when it is returned. Raises
        CLIENT_CLOSED once the consumer is closed, and INVALID_REQUEST if nothing is assigned."""
        self._check()
        return _Records(self)

    def _next(self) -> Record:
        while True:
            self._check()
            record: Record | None = self._iterated.consume_next()
            if record is not None:
                return record
            handover = Handover()
            try:
                self._hand_over(lambda consumer: consumer.poll(), handover)
                self._iterated = handover
            except BaseException:
                handover.recalled = True
                raise

    def _consume(self, request: Callable[[Consumer], Coroutine[Any, Any, _Result]]) -> _Result:
        """Runs a request. If its result is records, they are consumed when this returns."""
        while True:
            handover = Handover()
            try:
                result = self._hand_over(request, handover)
                # Nothing may be called from here on, because a call may be interrupted.
                if not handover.count or handover.consume():
                    return result
            except BaseException:
                handover.recalled = True
                raise

    def _hand_over(
        self, request: Callable[[Consumer], Coroutine[Any, Any, _Result]], handover: Handover
    ) -> _Result:
        """Runs a request, whose records fill the handover."""
        lending = self._client._state.taking.lending

        async def wrap(work: Coroutine[Any, Any, _Result]) -> _Result:
            await lending.wait_until_woken()
            result = await work
            lending.hand_over(result, handover)
            return result

        return self._wait(Call(self._requested(request), wrap=wrap))


class _Records(Iterator[Record]):
    """Not a generator, which could not continue after an exception of a signal handler."""

    def __init__(self, consumer: SyncConsumer) -> None:
        self._consumer = consumer

    def __next__(self) -> Record:
        return self._consumer._next()


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
