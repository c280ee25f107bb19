"""Sends the records of requests through long-lived producers, one for each kind of acks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tidelog.client.buffer_budget import BufferBudget
from tidelog.client.delivery import Delivery, mark_seen
from tidelog.client.open_batches import record_bytes
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Acks
from tidelog.record_batch import Headers
from tidelog_admin_api.bodies.record_bodies import RecordToSend

# How long the gateway still sends accepted records when it stops.
FLUSH_TIMEOUT_MS = 2_000
# A producer remembers every topic name. At this number of names it is replaced.
MAX_TOPIC_NAMES = 10_000
# Maximum size of the pending records of one topic. Topics share the buffer of a producer, and a
# topic without leaders must not fill it.
MAX_TOPIC_BYTES = 4 << 20


class SendsRecords(Protocol):
    """The part of `tidelog.client.Producer` that the gateway uses."""

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Delivery]: ...

    async def close(self, *, flush: bool = True) -> None: ...


Outcome = Delivery | TidelogError


class _Kept(NamedTuple):
    producer: SendsRecords
    topics: dict[str, None]


class RecordSender:
    def __init__(self, make: Callable[[Acks], SendsRecords]) -> None:
        self._make = make
        self._kept: dict[Acks, _Kept] = {}
        # Replaced producers, until they are closed.
        self._closing: dict[asyncio.Task[None], SendsRecords] = {}
        # By topic, while it has pending records.
        self._shares: dict[str, BufferBudget] = {}

    async def send(
        self, topic: str, records: Sequence[RecordToSend], acks: Acks, timeout_ms: int
    ) -> list[Outcome]:
        """Returns the outcome of each record, in their order.

        The records of a partition are appended in that order. A record that cannot be sent does
        not delay the others. A record without an outcome within `timeout_ms` gets
        REQUEST_TIMED_OUT. It may still be written, at most once.
        """
        producer = self._producer(topic, acks)
        sent: list[asyncio.Future[Delivery] | TidelogError] = []
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._send_all(producer, topic, records, sent)
                waiting = [one for one in sent if isinstance(one, asyncio.Future)]
                if waiting:
                    await asyncio.wait(waiting)
        except TimeoutError:
            pass
        outcomes = [_outcome(one, timeout_ms) for one in sent]
        return outcomes + [_unsent(timeout_ms)] * (len(records) - len(sent))

    async def close(self) -> None:
        """Delivers accepted records. Drops those that remain after FLUSH_TIMEOUT_MS."""
        kept, self._kept = self._kept, {}
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_MS / 1000):
                await asyncio.gather(*(one.producer.close() for one in kept.values()))
        except TimeoutError:
            pass
        # A `close` that flushes continues if its caller is cancelled. This ends it.
        left = [*(one.producer for one in kept.values()), *self._closing.values()]
        await asyncio.gather(*(producer.close(flush=False) for producer in left))

    def _producer(self, topic: str, acks: Acks) -> SendsRecords:
        kept = self._kept.get(acks)
        if kept is not None and topic not in kept.topics and len(kept.topics) >= MAX_TOPIC_NAMES:
            closing = asyncio.create_task(kept.producer.close())
            self._closing[closing] = kept.producer
            closing.add_done_callback(self._closing.pop)
            kept = None
        if kept is None:
            kept = self._kept[acks] = _Kept(self._make(acks), {})
        kept.topics[topic] = None
        return kept.producer

    async def _send_all(
        self,
        producer: SendsRecords,
        topic: str,
        records: Sequence[RecordToSend],
        sent: list[asyncio.Future[Delivery] | TidelogError],
    ) -> None:
        """Adds each result to `sent` immediately, since the caller may cancel this."""
        # Each lookup of a missing topic or partition takes time, so only the first is made.
        unknown: dict[int | None, TidelogError] = {}
        for record in records:
            known = unknown.get(None) or unknown.get(record.partition)
            if known is not None:
                sent.append(known)
                continue
            try:
                sent.append(await self._send_one(producer, topic, record))
            except TidelogError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    unknown[record.partition] = error
                sent.append(error)

    async def _send_one(
        self, producer: SendsRecords, topic: str, record: RecordToSend
    ) -> asyncio.Future[Delivery]:
        value, key, partition, headers, timestamp_ms = record
        size_bytes = record_bytes(key, value, headers)
        await self._shares.setdefault(topic, BufferBudget(MAX_TOPIC_BYTES)).take(size_bytes)
        try:
            delivery = await producer.send(
                topic,
                value,
                key,
                partition=partition,
                headers=headers,
                timestamp_ms=timestamp_ms,
            )
        except BaseException:
            self._give_back(topic, size_bytes)
            raise
        delivery.add_done_callback(lambda _: self._give_back(topic, size_bytes))
        # It may fail when no caller waits for it.
        delivery.add_done_callback(mark_seen)
        return delivery

    def _give_back(self, topic: str, size_bytes: int) -> None:
        share = self._shares[topic]
        share.give_back(size_bytes)
        if share.free_bytes == MAX_TOPIC_BYTES:
            del self._shares[topic]


def _outcome(sent: asyncio.Future[Delivery] | TidelogError, timeout_ms: int) -> Outcome:
    if isinstance(sent, TidelogError):
        return sent
    if not sent.done():
        return TidelogError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the record was not acknowledged within {timeout_ms} ms; it may be written, or may "
            "still be written once; read the end of the partition to find out",
        )
    error = sent.exception()
    if isinstance(error, TidelogError):
        return error
    return sent.result()


def _unsent(timeout_ms: int) -> TidelogError:
    return TidelogError(
        ErrorCode.LEADER_NOT_AVAILABLE,
        f"the record was not sent within {timeout_ms} ms, and is not written; the brokers are "
        "busy or unreachable",
    )
