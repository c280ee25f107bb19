"""Sends the records of requests through producers that are kept: one for each kind of
acknowledgement, made when it is first asked for."""

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
from tidelog_admin_api.bodies.records import RecordToSend

# What was taken is tried for so long when the gateway stops.
FLUSH_TIMEOUT_MS = 2_000
# A producer remembers every name that it was given; another takes its place after so many.
MAX_TOPIC_NAMES = 10_000
# Of one topic's records, until they are written or given up: a producer's buffer is shared, and
# a topic without leaders is not to fill it.
MAX_TOPIC_BYTES = 4 << 20


class SendsRecords(Protocol):
    """`tidelog.client.Producer`, as far as the gateway asks it."""

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
        # Producers that another one has replaced, until they are closed.
        self._closing: dict[asyncio.Task[None], SendsRecords] = {}
        # Of topics that have records under way.
        self._shares: dict[str, BufferBudget] = {}

    async def send(
        self, topic: str, records: Sequence[RecordToSend], acks: Acks, timeout_ms: int
    ) -> list[Outcome]:
        """What became of each, in their order, in which those of a partition are in its log. One
        that cannot be sent holds up no other. What has no outcome within `timeout_ms` is
        REQUEST_TIMED_OUT, and may be written yet, once."""
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
        """Delivers what was taken before, or gives it up soon."""
        kept, self._kept = self._kept, {}
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_MS / 1000):
                await asyncio.gather(*(one.producer.close() for one in kept.values()))
        except TimeoutError:
            pass
        # A `close` that flushes goes on when its wait is cancelled; this ends it.
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
        """Adds to `sent` as it goes on: it may be interrupted."""
        # Each look for a topic or partition that is not there takes a while: one is enough.
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
        # Whoever asked may have gone before it fails.
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
            f"nobody acknowledged the record within {timeout_ms} ms; it may be written, or may "
            "yet be, once; read the end of the partition to find out",
        )
    error = sent.exception()
    if isinstance(error, TidelogError):
        return error
    return sent.result()


def _unsent(timeout_ms: int) -> TidelogError:
    return TidelogError(
        ErrorCode.LEADER_NOT_AVAILABLE,
        f"the record was not sent within {timeout_ms} ms, and is not written; the brokers are "
        "busy or cannot be reached",
    )
