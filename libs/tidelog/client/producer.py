"""Sends records to topics (section 3 of docs/internals/protocol.md).

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
from types import TracebackType
from typing import Self

from tidelog.client.accumulator import Accumulator
from tidelog.client.arguments import (
    checks_arguments,
    choice,
    function,
    instance,
    natural,
    pair,
    positive,
    service_timeout,
)
from tidelog.client.buffer_budget import BufferBudget
from tidelog.client.clock import Clock, SystemClock
from tidelog.client.cluster_metadata import DEFAULT_METADATA_MAX_AGE_MS, ClusterMetadata
from tidelog.client.column_sending import ColumnSending
from tidelog.client.connections import Connections, GrpcConnections
from tidelog.client.delivery import (
    BatchDelivery,
    BatchReport,
    Delivery,
    DeliveryFuture,
    mark_seen,
)
from tidelog.client.lifecycle import Lifecycle, guarded, guards_itself
from tidelog.client.open_batches import record_bytes
from tidelog.client.outgoing_records import OutgoingRecords
from tidelog.client.partition_queue import Idempotence
from tidelog.client.producer_identity import GivenIdentity, ProducerIdentity
from tidelog.client.producer_settings import idempotence_of
from tidelog.client.record_columns import (
    RecordColumns,
    check_content,
    check_place,
    check_timestamps,
    checked_headers,
)
from tidelog.client.retry import DEFAULT_MAX_BACKOFF_MS, DEFAULT_MIN_BACKOFF_MS, Backoff
from tidelog.client.sealed_batch import MAX_SHARED_REQUEST_BYTES
from tidelog.client.send_admission import SendAdmission
from tidelog.client.sender import Sender
from tidelog.client.sequences import Identity
from tidelog.client.unclean_elections import UncleanElection
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Acks, Codec, TopicPartition
from tidelog.record_batch import Headers
from tidelog.record_limits import check_key_size

_log = logging.getLogger(__name__)


@guarded
@checks_arguments(
    unchecked=("send", "send_many"),
    acks=choice(Acks),
    codec=choice(Codec),
    identity=instance(Identity),
    on_delivery=function,
    on_unclean_election=function,
    linger_ms=natural,
    batch_bytes=positive,
    buffer_bytes=positive,
    max_in_flight_per_broker=positive,
    max_in_flight_per_partition=positive,
    max_request_bytes=positive,
    request_timeout_ms=service_timeout,
    delivery_timeout_ms=positive,
    retry_backoff_ms=pair(positive),
    next_sequence=natural,
    partition=natural,
)
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
    - `delivery_timeout_ms`: how long after the call of `send` a record is delivered or reported
      as failed at the latest. Waiting for metadata, for room in the buffer and in an open batch
      counts.
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
        acks: Acks | str = Acks.ALL,
        idempotent: bool | None = None,
        producer_name: str | None = None,
        identity: Identity | None = None,
        codec: Codec | str = Codec.NONE,
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
        chosen_acks, chosen_codec = choice(Acks)("acks", acks), choice(Codec)("codec", codec)
        idempotence = idempotence_of(
            chosen_acks, idempotent, producer_name, max_in_flight_per_partition, identity
        )
        self._clock = clock or SystemClock()
        self._lifecycle = Lifecycle("producer", self._clock)
        self._connections = connections or GrpcConnections()
        rng = rng or random.Random()
        self._metadata = self._new_metadata(bootstrap, metadata_max_age_ms)
        self._budget = budget = BufferBudget(buffer_bytes)
        backoff = Backoff(rng, *retry_backoff_ms)
        self._accumulator = Accumulator(
            backoff,
            max_request_bytes=min(max_request_bytes, MAX_SHARED_REQUEST_BYTES),
            max_in_flight_per_broker=max_in_flight_per_broker,
            max_in_flight_per_partition=max_in_flight_per_partition,
            idempotence=idempotence,
            producer_name=producer_name or "",
        )
        self._on_unclean_election = on_unclean_election
        identifying = None
        if idempotence is not Idempotence.OFF:
            identifying = self._new_identity(identity, producer_name or "", backoff)
        self._sender = self._new_sender(chosen_acks, request_timeout_ms, identifying)
        batch_bytes = min(batch_bytes, max_request_bytes)
        self._outgoing = OutgoingRecords(
            self._accumulator,
            self._metadata,
            budget,
            rng,
            codec=chosen_codec,
            batch_bytes=batch_bytes,
            linger_ms=linger_ms,
            on_delivery=on_delivery,
            wake=self._woken,
        )
        self._admission = self._new_admission(max_request_bytes, delivery_timeout_ms)
        self._columns = ColumnSending(
            self._admission, self._outgoing, budget, chosen_codec, batch_bytes
        )
        # Whether the last `send` has filled a batch.
        self._filled = False
        self._flush_on_close = True
        self._flushing: asyncio.Task[None] | None = None

    def _new_metadata(self, bootstrap: str | Sequence[str], max_age_ms: int) -> ClusterMetadata:
        return ClusterMetadata(
            bootstrap,
            self._connections,
            self._clock,
            self._metadata_changed,
            max_age_ms=max_age_ms,
        )

    def _new_admission(self, max_request_bytes: int, delivery_timeout_ms: int) -> SendAdmission:
        return SendAdmission(
            self._accumulator,
            self._metadata,
            self._budget,
            self._sender,
            self._clock,
            max_request_bytes=max_request_bytes,
            delivery_timeout_ms=delivery_timeout_ms,
        )

    def _new_identity(
        self, given: Identity | None, name: str, backoff: Backoff
    ) -> ProducerIdentity | GivenIdentity:
        if given is not None:
            return GivenIdentity(self._accumulator, self._metadata, given)
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
            # Made later, and used later still.
            seal_due=lambda now_ms: self._outgoing.seal_due(now_ms),
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
        # An interrupted or cancelled caller does not wait for a delivery timeout.
        await self.close(flush=kind is None or issubclass(kind, Exception))

    @property
    def free_bytes(self) -> int:
        """What the buffer has room for now."""
        return self._budget.free_bytes

    @guards_itself
    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> DeliveryFuture[Delivery]:
        """Waits for room in the buffer alone. Raises at once what cannot be sent: unknown
        topic or partition, a record larger than `max_request_bytes`, types. For many of what it
        returns, `asyncio.wait` costs less than `asyncio.gather`."""
        # What is as usual is checked in place: this is called for each record.
        if type(topic) is not str or partition is not None:
            check_place(topic, partition)
        if type(value) is not bytes or (key is not None and type(key) is not bytes):
            check_content("value", value)
            check_content("key", key)
        if key is not None:
            check_key_size(len(key))
        if headers != ():
            headers = checked_headers(headers)
        if timestamp_ms is None:
            timestamp_ms = self._clock.wall_ms()
        else:
            check_timestamps((timestamp_ms,))
        size = record_bytes(key, value, headers)
        loop = self._lifecycle.check()
        now_ms = self._clock.monotonic_ms()
        admission = self._admission
        deadline_ms = now_ms + admission.delivery_timeout_ms
        delivery: DeliveryFuture[Delivery] = DeliveryFuture(loop=loop)
        record = (key, value, headers, timestamp_ms, delivery)
        # A filled batch goes before the next is filled.
        pauses = self._filled or self._lifecycle.turn_due(now_ms)
        known = None if pauses else admission.at_once(topic, partition, size)
        if known is not None:
            self._filled = self._outgoing.add(
                topic, known, partition, now_ms, size, deadline_ms, record
            )
            return delivery
        with self._lifecycle.call():
            async with admission.turns.of(topic):
                if pauses:
                    self._filled = False
                    await asyncio.sleep(0)
                known = await admission.wait(topic, partition, size, deadline_ms)
                # Nothing is awaited from here on: a `send` that is cancelled has sent nothing.
                now_ms = self._clock.monotonic_ms()
                self._filled = self._outgoing.add(
                    topic, known, partition, now_ms, size, deadline_ms, record
                )
        return delivery

    def begin_at(self, topic: str, partition: int, next_sequence: int) -> None:
        """With a given identity: before the first record is sent to a partition."""
        self._accumulator.begin_at(TopicPartition(topic, partition), next_sequence)

    async def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        admission = self._admission
        known = await admission.known_topic(topic, None, admission.new_deadline_ms())
        return known.partitions

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
        rejected before any is taken. Raises as `send` does. One that is cancelled, or ended by
        `close`, has sent the batches that had room before, and no others."""
        columns = RecordColumns(
            values, keys, self._clock.wall_ms() if timestamps_ms is None else timestamps_ms
        )
        check_place(topic, partition)
        columns.check_shape()
        columns = columns.copied()
        checks = columns.check_in_slices()
        next(checks, None)
        batches: list[DeliveryFuture[BatchReport]] = []
        async with self._admission.turns.of(topic):
            # What was sealed before goes before more is made.
            await asyncio.sleep(0)
            for _ in checks:
                await asyncio.sleep(0)
            try:
                await self._columns.send(topic, columns, partition, batches)
            except BaseException:
                # Reported to `on_delivery` only: the caller never gets these.
                for batch in batches:
                    batch.add_done_callback(mark_seen)
                raise
        return BatchDelivery(batches)

    async def flush(self) -> None:
        """Sends what lingers, and returns when all that was taken before is settled,
        delivered or failed. One that is cancelled changes nothing about what is delivered."""
        await self._flush()

    async def _flush(self) -> None:
        for partition in self._outgoing.open_partitions():
            self._outgoing.seal_open(partition)
            if self._lifecycle.turn_due(self._clock.monotonic_ms()):
                await asyncio.sleep(0)
        if unsettled := self._outgoing.unsettled():
            await asyncio.wait(unsettled)

    @guards_itself
    async def close(self, *, flush: bool = True) -> None:
        """Ends calls in progress with CLIENT_CLOSED, delivers what was taken (until its delivery
        timeout at most) and ends. Without `flush`, what is not delivered yet fails. Can be
        cancelled, and then goes on in the background; and repeated, with `flush=False` to end an
        earlier `close` soon."""
        if not flush:
            self._flush_on_close = False
            if self._flushing is not None:
                self._flushing.cancel()
        await self._lifecycle.close(self._finish, self._abandon)

    async def _finish(self) -> None:
        try:
            if self._flush_on_close and self._flushing is None:
                self._flushing = asyncio.create_task(self._flush())
                await asyncio.wait((self._flushing,))
        finally:
            if self._flushing is not None:
                self._flushing.cancel()
            await self._fail_rest()
            await self._metadata.close()
            await self._connections.close()

    async def _fail_rest(self) -> None:
        error = TidelogError(
            ErrorCode.CLIENT_CLOSED,
            "the producer was closed before the records were delivered",
        )
        for partition in self._outgoing.open_partitions():
            self._outgoing.fail_open(partition, error)
        await self._sender.stop(error)

    async def _abandon(self) -> None:
        """The event loop of the producer is closed, and with it all that could deliver."""
        self._log_undelivered("its event loop was closed before it was")
        await self._connections.close()

    def __del__(self) -> None:
        # The constructor may have failed.
        if not getattr(getattr(self, "_lifecycle", None), "closed", True):
            self._log_undelivered("it was not closed")

    def _log_undelivered(self, why: str) -> None:
        batches = self._outgoing.count() if hasattr(self, "_outgoing") else 0
        if batches:
            _log.warning(
                "a producer ends with %d batches that are not known to be delivered: %s",
                batches,
                why,
            )

    def _metadata_changed(self) -> None:
        self._outgoing.forget_gone()
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
