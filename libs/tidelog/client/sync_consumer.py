"""`Consumer` without async."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

from tidelog.client.background import BackgroundClient, blocking, settings_of
from tidelog.client.consumer import (
    DEFAULT_MAX_BATCHES,
    DEFAULT_MAX_RECORDS,
    DEFAULT_POLL_TIMEOUT_MS,
    Consumer,
)
from tidelog.client.consumer_queries import Partitions
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.client.handover import Handover
from tidelog.client.loop_thread import LoopCall
from tidelog.model import Key_co, OffsetPosition, Record, TopicPartition, Value_co

_Result = TypeVar("_Result")


class SyncConsumer(BackgroundClient[Consumer[Key_co, Value_co]], Generic[Key_co, Value_co]):
    """`Consumer` without async, for any number of threads. Its settings are those of `Consumer`.

    `on_unclean_election` and deserializers run in the client's own thread, and may not call the
    client."""

    @settings_of(Consumer[Key_co, Value_co])
    def __init__(self, make: Callable[[], Consumer[Key_co, Value_co]]) -> None:
        def make_lending() -> Consumer[Key_co, Value_co]:
            consumer = make()
            consumer._state.taking.lending.lends = True
            return consumer

        # Records that iterators return, one by one.
        self._iterated = Handover()
        super().__init__(make_lending)

    def assign(
        self, partitions: Partitions, *, start: OffsetPosition | str = OffsetPosition.EARLIEST
    ) -> None:
        """Reads these partitions and no others. New ones begin at `start` unless the caller seeks;
        partitions that were assigned before continue. `poll` reports partitions that do not
        exist."""
        self._call(lambda consumer: consumer.assign(partitions, start=start))

    assign_topic = blocking(Consumer.assign_topic)

    def assignment(self) -> list[TopicPartition]:
        """Returns the assigned partitions, in order."""
        return self._call(lambda consumer: consumer.assignment)

    def buffered_bytes(self) -> int:
        """Returns the decompressed size of the buffered batches, as their frames state it."""
        return self._call(lambda consumer: consumer.buffered_bytes)

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int) -> None:
        """Makes `offset` the next one to read. Raises INVALID_REQUEST if the partition is not
        assigned. `poll` reports a partition that does not exist, and an offset out of range."""
        self._call(lambda consumer: consumer.seek(partition, offset))

    resume = blocking(Consumer.resume)
    seek_to_beginning = blocking(Consumer.seek_to_beginning)
    seek_to_end = blocking(Consumer.seek_to_end)
    seek_to_time = blocking(Consumer.seek_to_time)

    def position(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """Returns the offset of the next record that this consumer returns; None if a newly
        assigned partition has not found its start yet."""
        return self._call(lambda consumer: consumer.position(partition))

    partitions_of = blocking(Consumer.partitions_of)
    beginning_offsets = blocking(Consumer.beginning_offsets)
    end_offsets = blocking(Consumer.end_offsets)
    offsets_at_time = blocking(Consumer.offsets_at_time)
    offsets_with_epochs = blocking(Consumer.offsets_with_epochs)
    record_epochs = blocking(Consumer.record_epochs)
    known_topic = blocking(Consumer.known_topic)

    def poll(
        self,
        timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS,
        max_records: int = DEFAULT_MAX_RECORDS,
    ) -> list[Record[Key_co, Value_co]]:
        """Returns records as soon as there are any, as `Consumer.poll`; none after `timeout_ms`. A
        poll that a signal handler interrupts has consumed nothing."""
        return self._consume(lambda consumer: consumer.poll(timeout_ms, max_records))

    def poll_batches(
        self,
        timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS,
        max_batches: int = DEFAULT_MAX_BATCHES,
    ) -> list[FetchedBatch]:
        """Returns batches as soon as there are any, as `Consumer.poll_batches`; none after
        `timeout_ms`. A poll that a signal handler interrupts has consumed nothing."""
        return self._consume(lambda consumer: consumer.poll_batches(timeout_ms, max_batches))

    def ask(
        self, request: Callable[[Consumer[Key_co, Value_co]], Coroutine[Any, Any, _Result]]
    ) -> _Result:
        """As for other clients. The request is repeated if its result was records, and another call
        took them back before this one returned them."""
        return self._consume(request)

    def __iter__(self) -> Iterator[Record[Key_co, Value_co]]:
        """Waits for records without end. Each record moves the position when it is returned. Raises
        CLIENT_CLOSED once the consumer is closed, and INVALID_REQUEST if nothing is assigned."""
        self._check()
        return _Records(self)

    def _next(self) -> Record[Key_co, Value_co]:
        while True:
            self._check()
            record: Record[Key_co, Value_co] | None = self._iterated.consume_next()
            if record is not None:
                return record
            handover = Handover()
            try:
                self._hand_over(lambda consumer: consumer.poll(), handover)
                self._iterated = handover
            except BaseException:
                handover.recalled = True
                raise

    def _consume(
        self, request: Callable[[Consumer[Key_co, Value_co]], Coroutine[Any, Any, _Result]]
    ) -> _Result:
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
        self,
        request: Callable[[Consumer[Key_co, Value_co]], Coroutine[Any, Any, _Result]],
        handover: Handover,
    ) -> _Result:
        """Runs a request, whose records fill the handover."""
        lending = self._client._state.taking.lending

        async def wrap(work: Coroutine[Any, Any, _Result]) -> _Result:
            await lending.wait_until_woken()
            result = await work
            lending.hand_over(result, handover)
            return result

        return self._wait(LoopCall(self._requested(request), wrap=wrap))


class _Records(Iterator[Record[Key_co, Value_co]]):
    """Not a generator, which could not continue after an exception of a signal handler."""

    def __init__(self, consumer: SyncConsumer[Key_co, Value_co]) -> None:
        self._consumer = consumer

    def __next__(self) -> Record[Key_co, Value_co]:
        return self._consumer._next()
