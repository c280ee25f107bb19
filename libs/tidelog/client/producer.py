"""Sends records to topics.

    async with Producer("127.0.0.1:7500") as producer:
        delivery = await producer.send("sea", b"calm", key=b"north")
        print((await delivery).offset)

        delivery = await producer.send_and_wait("sea", b"swell")
        reports = await (await producer.send_many("sea", [b"ebb", b"flow"]))

`send` and `send_many` only wait for room in the buffer: that is the back-pressure. The objects
that they return are done when the batch is answered. `send_and_wait` waits for that, too.

By default a producer is idempotent: a record that is retried is written once and in order, even
if the leader changes. A record without an answer in time fails with an error whose
`outcome_unknown` is true: it may be written, but only once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

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
from tidelog.client.column_sender import ColumnSender
from tidelog.client.connections import Connections, GrpcConnections
from tidelog.client.delivery import BatchDelivery, BatchReport, Delivery, DeliveryFuture
from tidelog.client.lifecycle import FinalFlush, Lifecycle, guarded, guards_itself
from tidelog.client.open_batches import record_bytes
from tidelog.client.outgoing_records import OutgoingRecords
from tidelog.client.partition_queue import Idempotence
from tidelog.client.producer_identity import GivenIdentity, ProducerIdentity
from tidelog.client.producer_settings import idempotence_of
from tidelog.client.record_columns import (
    RecordColumns,
    check_place,
    check_timestamps,
    checked_headers,
    header_column,
)
from tidelog.client.record_serializer import RecordSerializer, Serializer
from tidelog.client.retry import DEFAULT_MAX_BACKOFF_MS, DEFAULT_MIN_BACKOFF_MS, Backoff
from tidelog.client.sealed_batch import MAX_SHARED_REQUEST_BYTES
from tidelog.client.send_admission import SendAdmission
from tidelog.client.sender import Sender
from tidelog.client.sequences import Identity
from tidelog.client.topic_locks import TopicLocks
from tidelog.client.unclean_elections import UncleanElection
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Acks, Codec, TopicPartition
from tidelog.record_batch import Headers
from tidelog.record_limits import check_key_size

_log = logging.getLogger(__name__)


@guarded
@checks_arguments(
    unchecked=("send", "send_and_wait", "send_many"),
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
    key_serializer=function,
    value_serializer=function,
)
class Producer:
    """Sends records. It belongs to one event loop.

    Every error of `send` and `send_many`, and of the objects that they return, is a
    `TidelogError`, except TypeError and ValueError for arguments that cannot be sent.

    - `idempotent`: by default with acks all, and only then. Each batch has the producer's id and a
      sequence, by which brokers append it once and in order. At most five batches of a partition
      are in flight.
    - `producer_name`: an idempotent producer continues the sequences of the previous holder of
      this name, in every partition. A new holder fences the previous one, whose sends then fail
      with FENCED_PRODUCER_EPOCH. This is certain in every partition to which the new holder has
      written. In others it begins when the metadata store notifies the leader, and not while the
      leader is disconnected from the store.
    - `identity`: of a name, for a caller that gets its epoch and its positions (`begin_at`) from
      InitProducerId and DescribeProducers itself (`Admin`). The first batch that is not written
      ends the producer, and all waiting records fail: no record gets the sequence of another.
    - `batch_bytes`: a batch is sent when its keys, values and headers reach this size,
    - `linger_ms`: or when its first record has waited this long. While its leader owes this
      producer an answer, the batch gathers for up to 100 ms more, and is sent together with other
      batches for that leader.
    - `buffer_bytes`: maximum size of keys, values and headers that are not delivered.
    - `max_in_flight_per_broker`: produce requests without an answer. At most
      `max_in_flight_per_partition` of them have batches of one partition. Without idempotence, 1
      keeps the order of a partition through every retry, at a cost of speed.
    - `request_timeout_ms`: maximum wait of the leader for its replicas.
    - `delivery_timeout_ms`: time from the call of `send` until a record is delivered or reported
      as failed at the latest. It includes waiting for earlier calls, for metadata, for room in the
      buffer and in an open batch.
    - `retry_backoff_ms`: first and longest pause between tries, shortened by up to half.
    - `on_delivery`: called with a report for every batch, delivered or failed; errors need not be
      retrieved from the futures then.
    - `on_unclean_election`: called once for each election after which acknowledged records may be
      lost; a warning is logged as well.
    - `metadata_max_age_ms`: time within which added and removed partitions, and deleted topics,
      are noticed even if no send fails.
    - `key_serializer`, `value_serializer`: turn the keys and values of `send`, `send_and_wait` and
      `send_many` into bytes at the call; None stays a null. One that fails raises
      `SerializationError`, and nothing of the call is sent. Without them, give bytes or None. See
      `serializers`.
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
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
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
        identifying = self._new_identity(idempotence, identity, producer_name or "", backoff)
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
        self._columns = ColumnSender(
            self._admission, self._outgoing, budget, chosen_codec, batch_bytes
        )
        self._serializer = RecordSerializer(key_serializer, value_serializer)
        # Read by each `send`.
        self._sendable_type = self._serializer.sendable_type
        self._final_flush = FinalFlush()

    @property
    def _turns(self) -> TopicLocks:
        """The former name of the locks by topic, until version 0.3.0 (FORMER_NAMES_END)."""
        return self._admission.locks

    def _new_metadata(self, bootstrap: str | Sequence[str], max_age_ms: int) -> ClusterMetadata:
        return ClusterMetadata(
            bootstrap, self._connections, self._clock, self._metadata_changed, max_age_ms=max_age_ms
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
        self, idempotence: Idempotence, given: Identity | None, name: str, backoff: Backoff
    ) -> ProducerIdentity | GivenIdentity | None:
        if idempotence is Idempotence.OFF:
            return None
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
            # `_outgoing` is created later, and used later still.
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
        # The caller of an interrupted or cancelled block does not wait for a delivery timeout.
        await self.close(flush=kind is None or issubclass(kind, Exception))

    @property
    def free_bytes(self) -> int:
        """Free bytes in the buffer."""
        return self._budget.free_bytes

    @guards_itself
    async def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> DeliveryFuture[Delivery]:
        """Waits only for room in the buffer. Raises at once if the record cannot be sent: unknown
        topic or partition, a record larger than `max_request_bytes`, wrong types. For many of the
        returned futures, `asyncio.wait` costs less than `asyncio.gather`.

        `value`, `key`: bytes or None, or what the serializers take."""
        # Usual arguments are checked in place, because this is called for each record.
        if type(topic) is not str or partition is not None:
            check_place(topic, partition)
        sendable = self._sendable_type
        if type(value) is not sendable or (key is not None and type(key) is not sendable):
            key, value = self._serializer.key_and_value(topic, key, value)
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
        delivery: DeliveryFuture[Delivery] = DeliveryFuture.new(loop)
        record = (key, value, headers, timestamp_ms, delivery)
        # A filled batch is sent before the next one is filled.
        outgoing = self._outgoing
        pauses = outgoing.has_filled or self._lifecycle.is_yield_due(now_ms)
        known = None if pauses else admission.at_once(topic, partition, size)
        if known is not None:
            outgoing.add(topic, known, partition, now_ms, size, deadline_ms, record)
            return delivery
        with self._lifecycle.call():
            async with admission.hold_topic(topic, deadline_ms):
                if pauses:
                    outgoing.has_filled = False
                    await asyncio.sleep(0)
                known = await admission.wait(topic, partition, size, deadline_ms)
                # Do not await from here on: a cancelled `send` has sent nothing.
                now_ms = self._clock.monotonic_ms()
                outgoing.add(topic, known, partition, now_ms, size, deadline_ms, record)
        return delivery

    @guards_itself
    async def send_and_wait(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Sends a record, and waits until it is delivered. Raises as `send`, or the record's error.
        A cancelled call does not recall the record; `close` ends the call with the record's
        outcome."""
        delivery = await self.send(
            topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        return await delivery

    def begin_at(self, topic: str, partition: int, next_sequence: int) -> None:
        """Sets a partition's first sequence, with a given identity, before the first record."""
        self._accumulator.begin_at(TopicPartition(topic, partition), next_sequence)

    async def partitions_of(self, topic: str) -> int:
        """Returns the number of partitions of a topic. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        admission = self._admission
        known = await admission.known_topic(topic, None, admission.new_deadline_ms())
        return known.partitions

    async def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None = None,
        *,
        partition: int | None = None,
        headers: Sequence[Headers] | Headers = (),
        timestamps_ms: Sequence[int] | int | None = None,
    ) -> BatchDelivery:
        """Sends columns of records at less cost than `send`: they become batches directly, and do
        not linger.

        Waits for room in the buffer batch by batch. A record that cannot be sent is rejected before
        any is accepted. Raises as `send` does; if batches had room before, these are sent, and the
        error has `outcome_unknown`. A call that is cancelled, or ended by `close`, has sent the
        batches that had room before, and no others.

        `headers`: those of all records, as in `send`, or one such sequence for each record.

        `delivery_timeout_ms` counts from the call for the first batch, and for each later one from
        when the batch before it got room. The call raises if a batch of it times out while the next
        one waits for room."""
        deadline_ms = self._admission.new_deadline_ms()
        columns = RecordColumns(
            values, keys, self._clock.wall_ms() if timestamps_ms is None else timestamps_ms
        )
        check_place(topic, partition)
        columns.check_shape()
        if headers != ():
            columns = columns._replace(headers=header_column(headers, values))
        columns = columns.copied(replaceable=self._sendable_type is None)
        checks = columns.check_in_slices(self._serializer, topic)
        next(checks, None)
        batches = await self._columns.send(topic, columns, partition, deadline_ms, checks)
        return BatchDelivery(batches)

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Sends open batches. Returns when all records that were accepted before are delivered or
        have failed. A cancelled call does not change what is delivered, nor does one that raises
        REQUEST_TIMED_OUT after `timeout_ms`."""
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._flush()
        except TimeoutError:
            raise TidelogError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"after {timeout_ms} ms, {self._outgoing.count()} batches have no outcome yet; "
                "they are delivered or reported within their delivery_timeout_ms",
            ) from None

    async def _flush(self) -> None:
        for partition in self._outgoing.open_partitions():
            self._outgoing.seal_open(partition)
            if self._lifecycle.is_yield_due(self._clock.monotonic_ms()):
                await asyncio.sleep(0)
        if unsettled := self._outgoing.unsettled():
            await asyncio.wait(unsettled)

    @guards_itself
    async def close(self, *, flush: bool = True) -> None:
        """Ends calls in progress with CLIENT_CLOSED, and delivers accepted records, until their
        delivery timeout at most.

        Without `flush`, records that are not delivered yet fail. A cancelled `close` continues in
        the background. It can be repeated, with `flush=False` to end an earlier one soon."""
        if not flush:
            self._final_flush.leave_out()
        await self._lifecycle.close(self._finish, self._abandon)

    async def _finish(self) -> None:
        try:
            await self._final_flush.run(self._flush)
        finally:
            self._final_flush.cancel()
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
        """Closes connections; the producer's event loop, which could deliver, is closed."""
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
        self._outgoing.forget_removed()
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
