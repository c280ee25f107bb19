"""Transfers of encoded batches, for copies of logs (`tidelog.backup`): without decoding records."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from tidelog.client.consumer import Consumer
from tidelog.client.delivery import BatchReport, DeliveryFuture
from tidelog.client.fetch_codec import FoundOffset
from tidelog.client.producer import Producer
from tidelog.errors import TidelogError
from tidelog.model import OffsetPosition, TopicPartition
from tidelog.record_batch import EncodedRecords


def keep_fences(consumer: Consumer) -> None:
    """Lets `poll_batches` return producer fences, too, so that offsets have no gaps."""
    consumer._state.taking.keeps_fences = True


def offsets_of_each(
    consumer: Consumer, partitions: Iterable[TopicPartition], position: OffsetPosition
) -> AsyncGenerator[tuple[TopicPartition, FoundOffset | TidelogError]]:
    """As `Consumer.offsets_with_epochs`, with an error of its own for each partition. Without a
    leader that is REQUEST_TIMED_OUT after `offsets_timeout_ms`."""
    return consumer._finder.find_each(partitions, position)


async def send_encoded(
    producer: Producer, partition: TopicPartition, encoded: EncodedRecords
) -> DeliveryFuture[BatchReport]:
    """Sends one batch as it is, after the batches that were sent before. Waits only for room in the
    buffer. Raises as `Producer.send`."""
    topic, number = partition
    admission = producer._admission
    size = len(encoded.records)
    deadline_ms = admission.new_deadline_ms()
    with producer._lifecycle.call():
        async with admission.hold_topic(topic, deadline_ms):
            known = await admission.wait(topic, number, size, deadline_ms)
            return producer._outgoing.add_batch(topic, known, number, encoded, size, deadline_ms)
