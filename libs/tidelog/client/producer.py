"""Sends records to topics (section 3 of ARCHITECTURE.md).

    async with Producer("127.0.0.1:7500") as producer:
        delivery = await producer.send("sea", b"calm", key=b"north")
        print((await delivery).offset)

        reports = await (await producer.send_many("sea", [b"ebb", b"flow"]))

`send` and `send_many` wait for nothing but room in the buffer: that is the back-pressure.
What they return is settled when the batch is answered.

A producer is idempotent unless it is told otherwise: whatever is retried is written once,
and in the order in which it was sent, a change of leader included. What no broker answers
in time fails with an error whose `outcome_unknown` is true: it may be written, once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from tidelog.client.accumulator import Accumulator
from tidelog.client.buffer_budget import BufferBudget
from tidelog.client.clock import Clock, SystemClock
from tidelog.client.cluster_metadata import DEFAULT_METADATA_MAX_AGE_MS, ClusterMetadata
from tidelog.client.connections import Connections, GrpcConnections
from tidelog.client.delivery import BatchDelivery, BatchReport, Delivery, Outcome, mark_seen, settle
from tidelog.client.metadata_cache import KnownTopic
from tidelog.client.open_batches import OpenBatch, OpenBatches, record_bytes
from tidelog.client.partition_queue import Idempotence
from tidelog.client.partitioner import (
    StickyPartitioner,
    partition_for_key,
    usable_partitions,
)
from tidelog.client.producer_identity import GivenIdentity, ProducerIdentity
from tidelog.client.producer_settings import at_least, idempotence_of, of_a_given
from tidelog.client.record_columns import (
    RecordColumns,
    check_bytes,
    check_timestamps,
    checked_headers,
    cut,
    split_by_key,
)
from tidelog.client.retry import DEFAULT_MAX_BACKOFF_MS, DEFAULT_MIN_BACKOFF_MS, Backoff
from tidelog.client.sender import Sender
from tidelog.client.sequences import Identity
from tidelog.client.shipment import Shipment
from tidelog.client.topic_turns import TopicTurns
from tidelog.client.unclean_elections import UncleanElection
from tidelog.errors import FINAL_ANSWERS, ErrorCode, TidelogError
from tidelog.model import Acks, Codec, TopicPartition
from tidelog.record_batch import Headers, encode_records
from tidelog.record_limits import check_key_size
from tidelog.rpc.trace_context import captured

_log = logging.getLogger(__name__)


class Producer:
    """Belongs to one event loop. Every error of `send` and `send_many`, and of what they
    return, is a `TidelogError`, except TypeError and ValueError for arguments that cannot
    be sent.

    - `idempotent`: by default with acks all, and only then. Each batch carries the
      producer's id and a sequence, by which brokers append it once and in its place; no
      more than five batches of a partition are on their way at once.
    - `producer_name`: of an idempotent producer whose sequences go on where the last
      holder of the name ended, in every partition. A new holder fences the one before it,
      whose sends then fail with FENCED_PRODUCER_EPOCH: for certain in every partition that
      the new one has written to; in others as soon as the leader hears of it from the
      metadata store, but not while it is cut off from there.
    - `identity`: of a name, for who takes its epoch and its positions (`begin_at`) from
      InitProducerId and DescribeProducers itself (`Admin`). With the first batch that is not
      written it ends, and all that waits fails: no record takes the sequence of another.
    - `batch_bytes`: a batch is sent when its keys, values and headers reach this.
    - `linger_ms`: or when its first record has waited this long. While its leader owes this
      producer an answer it gathers on, for 100 ms at most, and goes along with what is sent there.
    - `buffer_bytes`: keys, values and headers held until they are delivered.
    - `max_in_flight_per_broker`: produce requests without an answer yet; of those,
      `max_in_flight_per_partition` may carry batches of one partition. Without
      idempotence 1 keeps the order of a partition through every retry, at a cost of speed.
    - `request_timeout_ms`: how long the leader may wait for its replicas.
    - `delivery_timeout_ms`: how long a batch that gathers no more is tried before it is reported
      as failed.
    - `retry_backoff_ms`: first and longest pause between tries, cut by up to half.
    - `on_delivery`: called with a report for every batch, delivered or failed; errors
      need not be looked for in the futures then.
    - `on_unclean_election`: called, and a warning logged, once for each election after
      which acknowledged records may be gone.
    - `metadata_max_age_ms`: added and removed partitions, and deleted topics, are noticed within
      this time even if no send fails.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        acks: Acks = Acks.ALL,
        idempotent: bool | None = None,
        producer_name: str | None = None,
        identity: Identity | None = None,
        codec: Codec = Codec.NONE,
        batch_bytes: int = 64 << 10,
        linger_ms: int = 5,
        buffer_bytes: int = 32 << 20,
        max_in_flight_per_broker: int = 5,
        max_in_flight_per_partition: int = 5,
        max_request_bytes: int = 1 << 20,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        retry_backoff_ms: tuple[int, int] = (DEFAULT_MIN_BACKOFF_MS, DEFAULT_MAX_BACKOFF_MS),
        on_delivery: Callable[[BatchReport], None] | None = None,
        on_unclean_election: Callable[[UncleanElection], None] | None = None,
        metadata_max_age_ms: int = DEFAULT_METADATA_MAX_AGE_MS,
        connections: Connections | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        at_least(0, linger_ms=linger_ms)
        at_least(
            1,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            max_in_flight_per_broker=max_in_flight_per_broker,
            max_in_flight_per_partition=max_in_flight_per_partition,
            max_request_bytes=max_request_bytes,
            request_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=delivery_timeout_ms,
        )
        idempotence = idempotence_of(acks, idempotent, producer_name, max_in_flight_per_partition)
        if identity is not None:
            idempotence = of_a_given(identity, idempotence, producer_name)
        self._clock = clock or SystemClock()
        self._codec = codec
        self._batch_bytes = min(batch_bytes, max_request_bytes)
        self._max_request_bytes = max_request_bytes
        self._delivery_timeout_ms = delivery_timeout_ms
        self._on_delivery = on_delivery
        self._connections = connections or GrpcConnections()
        rng = rng or random.Random()
        self._metadata = ClusterMetadata(
            bootstrap,
            self._connections,
            self._clock,
            self._metadata_changed,
            max_age_ms=metadata_max_age_ms,
        )
        self._budget = BufferBudget(buffer_bytes)
        self._open = OpenBatches(self._batch_bytes, linger_ms)
        self._sticky = StickyPartitioner(rng)
        backoff = Backoff(rng, *retry_backoff_ms)
        self._accumulator = Accumulator(
            backoff,
            max_request_bytes=max_request_bytes,
            max_in_flight_per_broker=max_in_flight_per_broker,
            max_in_flight_per_partition=max_in_flight_per_partition,
            idempotence=idempotence,
        )
        self._on_unclean_election = on_unclean_election
        identifying: ProducerIdentity | GivenIdentity | None = None
        if identity is not None:
            identifying = GivenIdentity(self._accumulator, self._metadata, identity)
        elif idempotence is not Idempotence.OFF:
            identifying = self._new_identity(producer_name or "", backoff)
        self._sender = self._new_sender(acks, request_timeout_ms, identifying)
        # Whoever calls first is first in the log, however long each has to wait for metadata
        # or for room; a topic that cannot be found holds up nobody else's.
        self._turns = TopicTurns()
        self._unsettled: set[asyncio.Future[BatchReport]] = set()
        self._started = False
        self._closed = False

    def _new_identity(self, name: str, backoff: Backoff) -> ProducerIdentity:
        return ProducerIdentity(
            self._accumulator,
            self._metadata,
            self._connections,
            self._clock,
            backoff,
            name=name,
            on_change=self._woken,
        )

    def _new_sender(
        self,
        acks: Acks,
        request_timeout_ms: int,
        identity: ProducerIdentity | GivenIdentity | None,
    ) -> Sender:
        return Sender(
            self._accumulator,
            self._metadata,
            self._connections,
            self._clock,
            acks=acks,
            request_timeout_ms=request_timeout_ms,
            seal_due=self._seal_due,
            identity=identity,
            on_unclean_election=self._unclean_election,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Whoever interrupts or cancels does not want to wait for a delivery timeout.
        await self.close(flush=kind is None or issubclass(kind, Exception))

    @property
    def free_bytes(self) -> int:
        """What the buffer has room for now."""
        return self._budget.free_bytes

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Delivery]:
        """Waits for room in the buffer alone. Raises at once what cannot be sent: unknown
        topic or partition, a record larger than `max_request_bytes`, types."""
        check_bytes("value, key", (value, key))
        if key is not None:
            check_key_size(len(key))
        headers = checked_headers(headers)
        if timestamp_ms is None:
            timestamp_ms = self._clock.wall_ms()
        else:
            check_timestamps((timestamp_ms,))
        size = record_bytes(key, value, headers)
        delivery: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        async with self._turns.of(topic):
            known = await self._known_topic(topic, partition)
            self._check_size(size)
            if not self._budget.try_take(size):
                await self._budget.take(size)
                if self._closed:
                    self._budget.give_back(size)
                    self._check_not_closed()
                # The topic may have changed meanwhile.
                known = self._metadata.cached_topic(topic) or known
            now_ms = self._clock.monotonic_ms()
            to = TopicPartition(topic, self._choose(topic, known, key, partition, now_ms))
            if self._open.would_fill(to, size, len(headers)):
                self._seal_open(to)
                to = TopicPartition(topic, self._choose(topic, known, key, partition, now_ms))
                if self._open.would_fill(to, size, len(headers)):
                    self._seal_open(to)
            full = self._open.add(
                to,
                now_ms,
                size,
                key=key,
                value=value,
                headers=headers,
                timestamp_ms=timestamp_ms,
                waiter=delivery,
                movable=key is None and partition is None,
            )
        if full:
            self._seal_open(to)
            # Lets the batch go before the next is filled.
            await asyncio.sleep(0)
        elif self._open.count(to) == 1 and self._open.last_is_next(now_ms):
            self._sender.wake()
        return delivery

    def begin_at(self, topic: str, partition: int, next_sequence: int) -> None:
        """With a given identity: before the first record is sent to a partition."""
        self._accumulator.begin_at(TopicPartition(topic, partition), next_sequence)

    async def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        return (await self._known_topic(topic, None)).partitions

    async def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        *,
        partition: int | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
    ) -> BatchDelivery:
        """The lean way: values become batches directly, which are sent without lingering.
        Waits for room in the buffer batch by batch; a record that cannot be sent is
        refused before any is taken. Raises as `send` does."""
        columns = RecordColumns(
            values, keys, self._clock.wall_ms() if timestamps_ms is None else timestamps_ms
        )
        columns.check()
        async with self._turns.of(topic):
            batches = await self._send_columns(topic, columns, partition)
        await asyncio.sleep(0)
        return BatchDelivery(batches)

    async def _send_columns(
        self, topic: str, columns: RecordColumns, partition: int | None
    ) -> list[asyncio.Future[BatchReport]]:
        known = await self._known_topic(topic, partition)
        sizes = columns.sizes()
        self._check_size(max(sizes, default=0))
        count = known.partitions
        if partition is None:
            split = split_by_key(columns, lambda key: partition_for_key(key, count))
        else:
            split = [(partition, columns)]
        batches: list[asyncio.Future[BatchReport]] = []
        unsent_bytes = 0
        for chosen, of_partition in split:
            if of_partition is not columns:
                sizes = of_partition.sizes()
            for piece, size in cut(of_partition, sizes, self._batch_bytes):
                await self._budget.take(size)
                try:
                    self._check_not_closed()
                    encoded = encode_records(
                        piece.values,
                        piece.keys,
                        timestamps_ms=piece.timestamps_ms,
                        codec=self._codec,
                    )
                except BaseException:
                    self._budget.give_back(size)
                    raise
                shipment = Shipment(encoded, size, self._deadline_ms(), trace_context=captured())
                to = chosen
                if to is None:
                    shipment = shipment._replace(movable=range(encoded.record_count))
                    known = self._metadata.cached_topic(topic) or known
                    to = self._sticky.move(topic, usable_partitions(known))
                where = TopicPartition(topic, to)
                self._seal_open(where)
                batches.append(self._seal(where, shipment))
                unsent_bytes += size
                if unsent_bytes >= self._max_request_bytes:
                    # A request is full: lets it go before the next is made.
                    unsent_bytes = 0
                    await asyncio.sleep(0)
        return batches

    async def flush(self) -> None:
        """Sends what lingers, and returns when all that was taken before is settled,
        delivered or failed."""
        for batch in self._open.take_all():
            self._seal_batch(batch)
        if self._unsettled:
            await asyncio.wait(set(self._unsettled))

    async def close(self, *, flush: bool = True) -> None:
        """Delivers what was taken (at most until its delivery timeout) and ends. Without
        `flush`, what is not delivered yet fails."""
        if self._closed:
            return
        if flush:
            await self.flush()
        self._closed = True
        error = TidelogError(
            ErrorCode.INTERNAL, "the producer was closed before the batch was delivered"
        )
        for batch in self._open.take_all():
            self._seal_batch(batch)
        await self._sender.stop(error)
        await self._metadata.close()
        await self._connections.close()

    async def _known_topic(self, topic: str, partition: int | None) -> KnownTopic:
        self._check_not_closed()
        if not self._started:
            self._started = True
            self._sender.start()
        known = self._metadata.cached_topic(topic) or await self._metadata.topic(topic)
        if partition is not None:
            await self._metadata.check_partition(TopicPartition(topic, partition))
        return known

    def _choose(
        self, topic: str, known: KnownTopic, key: bytes | None, asked: int | None, now_ms: int
    ) -> int:
        if asked is not None:
            return asked
        if key is not None:
            return partition_for_key(key, known.partitions)
        current = self._sticky.current(topic)
        if (
            current is None
            or current >= known.partitions
            # Its leader may be slower than others.
            or self._open.has_lingered(TopicPartition(topic, current), now_ms)
        ):
            return self._sticky.move(topic, usable_partitions(known))
        return current

    def _seal_due(self, now_ms: int) -> int | None:
        while True:
            gathers_until = self._accumulator.gathers_until(now_ms, self._metadata.leader)
            due, next_ms = self._open.take_due(now_ms, gathers_until)
            if not due:
                return next_ms
            # With what is sealed now, others of the same leader may go.
            for batch in due:
                self._seal_batch(batch)

    def _seal_open(self, partition: TopicPartition) -> None:
        batch = self._open.take(partition)
        if batch is not None:
            self._seal_batch(batch)

    def _seal_batch(self, batch: OpenBatch) -> None:
        topic, partition = batch.partition
        if self._sticky.current(topic) == partition:
            known = self._metadata.cached_topic(topic)
            if known is not None:
                self._sticky.move(topic, usable_partitions(known))
        self._seal(
            batch.partition,
            Shipment(
                batch.encode(self._codec),
                batch.size_bytes,
                self._deadline_ms(),
                batch.waiters,
                batch.timestamps_ms,
                batch.movable,
                batch.trace_context,
            ),
        )

    def _deadline_ms(self) -> int:
        return self._clock.monotonic_ms() + self._delivery_timeout_ms

    def _seal(self, partition: TopicPartition, shipment: Shipment) -> asyncio.Future[BatchReport]:
        report: asyncio.Future[BatchReport] = asyncio.get_running_loop().create_future()
        self._unsettled.add(report)
        self._ship(partition, shipment, report)
        return report

    def _ship(
        self, partition: TopicPartition, shipment: Shipment, report: asyncio.Future[BatchReport]
    ) -> None:
        self._accumulator.seal(
            partition,
            shipment.encoded,
            deadline_ms=shipment.deadline_ms,
            on_settled=partial(self._settled, partition, shipment, report),
            trace_context=shipment.trace_context,
        )
        self._sender.wake()

    def _settled(
        self,
        partition: TopicPartition,
        shipment: Shipment,
        report: asyncio.Future[BatchReport],
        outcome: Outcome,
    ) -> None:
        gone = isinstance(outcome, TidelogError) and outcome.code in FINAL_ANSWERS
        known = self._metadata.cached_topic(partition.topic) if gone else None
        if known is not None and shipment.movable:
            moved, others = shipment.split()
            to = self._sticky.move(partition.topic, usable_partitions(known))
            self._ship(TopicPartition(partition.topic, to), moved, report)
            if others is None:
                return
            # The report goes with the records that were moved.
            shipment, report = others, asyncio.get_running_loop().create_future()
        self._unsettled.discard(report)
        self._budget.give_back(shipment.size_bytes)
        made = settle(
            report,
            shipment.waiters,
            shipment.timestamps_ms,
            partition,
            shipment.encoded.record_count,
            outcome,
        )
        if self._on_delivery is not None:
            # Whatever it raises is the event loop's to report, and stops nothing here.
            asyncio.get_running_loop().call_soon(self._on_delivery, made)
            mark_seen(report)
            for waiter in shipment.waiters:
                mark_seen(waiter)

    def _metadata_changed(self) -> None:
        self._sticky.forget_gone(self._metadata.cached_topic)
        self._sender.metadata_changed()

    def _woken(self) -> None:
        self._sender.wake()

    def _unclean_election(self, election: UncleanElection) -> None:
        _log.warning(
            "unclean election of %s in leader epoch %d: records that were acknowledged below "
            "offset %d, in leader epoch %d or before, may be gone",
            *election,
        )
        if self._on_unclean_election is not None:
            asyncio.get_running_loop().call_soon(self._on_unclean_election, election)

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._max_request_bytes:
            raise TidelogError(
                ErrorCode.BATCH_TOO_LARGE,
                f"a record of {size_bytes} bytes does not fit into max_request_bytes "
                f"({self._max_request_bytes}); send smaller records, or raise it together with "
                "the topic's max_batch_bytes",
            )

    def _check_not_closed(self) -> None:
        if self._closed:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST, "the producer is closed; make a new one to send more"
            )
        if self._accumulator.fatal is not None:
            raise TidelogError(self._accumulator.fatal.code, self._accumulator.fatal.message)
