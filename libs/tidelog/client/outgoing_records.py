"""A producer's records from `send` to their outcome: chooses their partition and batch, and reports
the outcome to their waiters."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tidelog.client.accumulator import Accumulator
from tidelog.client.buffer_budget import BufferBudget
from tidelog.client.cluster_metadata import ClusterMetadata
from tidelog.client.delivery import (
    BatchReport,
    Delivery,
    DeliveryFuture,
    Outcome,
    mark_seen,
    settle,
)
from tidelog.client.metadata_cache import KnownTopic
from tidelog.client.open_batches import OpenBatch, OpenBatches, OpenRecord
from tidelog.client.outgoing_batch import OutgoingBatch
from tidelog.client.partitioner import (
    StickyPartitioner,
    partition_for_key,
    usable_partitions,
)
from tidelog.errors import FINAL_ANSWERS, TidelogError
from tidelog.model import Codec, TopicPartition
from tidelog.record_batch import EncodedRecords
from tidelog.record_limits import check_batch_bytes
from tidelog.rpc.trace_context import captured


class _Pending(NamedTuple):
    """Futures of one sealed batch. The caller gets `report`. `settled` is internal, and is done
    once the batch has an outcome."""

    report: DeliveryFuture[BatchReport]
    settled: asyncio.Future[None]


class _Moved(NamedTuple):
    """Records were moved. `others`: those that could not be sent to another partition; None: all
    could."""

    others: OutgoingBatch | None


class OutgoingRecords:
    """Records of one producer.

    - `budget`: the caller takes bytes; each batch gives them back when it has an outcome.
    - `wake`: called when something can be sent that could not before."""

    def __init__(
        self,
        accumulator: Accumulator,
        metadata: ClusterMetadata,
        budget: BufferBudget,
        rng: random.Random,
        *,
        codec: Codec,
        batch_bytes: int,
        linger_ms: int,
        on_delivery: Callable[[BatchReport], None] | None,
        wake: Callable[[], None],
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._budget = budget
        self._codec = codec
        self._open = OpenBatches(batch_bytes, linger_ms)
        self._sticky = StickyPartitioner(rng)
        self._on_delivery = on_delivery
        self._wake = wake
        # One for each sealed batch without an outcome.
        self._unsettled: set[asyncio.Future[None]] = set()
        # Whether the last record filled its batch; the caller resets it.
        self.has_filled = False

    def add(
        self,
        topic: str,
        known: KnownTopic,
        requested: int | None,
        now_ms: int,
        size: int,
        deadline_ms: int,
        record: OpenRecord,
    ) -> None:
        """Adds a record to the open batch of its partition (`requested`, if not None). Sets
        `has_filled`."""
        key, header_count = record[0], len(record[2])
        to = self._place(topic, known, key, requested, now_ms)
        batch = self._open.get(to)
        if batch is not None and self._open.would_fill(batch, size, header_count):
            self.seal_open(to)
            to = self._place(topic, known, key, requested, now_ms)
            batch = self._open.get(to)
            if batch is not None and self._open.would_fill(batch, size, header_count):
                self.seal_open(to)
                batch = None
        is_new = batch is None
        if batch is None:
            batch = self._open.open(to, now_ms, deadline_ms)
        full = self._open.add(batch, size, record, movable=key is None and requested is None)
        if full:
            self.seal_open(to)
        elif is_new and self._open.last_is_next(now_ms):
            self._wake()
        self.has_filled = full

    def add_batch(
        self,
        topic: str,
        known: KnownTopic,
        chosen: int | None,
        encoded: EncodedRecords,
        size: int,
        deadline_ms: int,
    ) -> DeliveryFuture[BatchReport]:
        """Adds a complete batch, after the records that its partition has gathered. `chosen`: None
        if it may go to any partition."""
        outgoing = OutgoingBatch(encoded, size, deadline_ms, trace_context=captured())
        to = chosen
        if to is None:
            outgoing = outgoing._replace(movable=range(encoded.record_count))
            known = self._metadata.cached_topic(topic) or known
            to = self._sticky.move(topic, usable_partitions(known))
        where = TopicPartition(topic, to)
        self.seal_open(where)
        return self._seal(where, outgoing)

    def seal_due(self, now_ms: int) -> int | None:
        """Seals the batches that are due. Returns when to call this again at the latest."""
        while True:
            gathers_until = self._accumulator.gathers_until(now_ms, self._metadata.leader)
            due, next_ms = self._open.take_due(now_ms, gathers_until)
            if not due:
                return next_ms
            # With these sealed batches, others for the same leader may be due.
            for batch in due:
                self._seal_batch(batch)

    def open_partitions(self) -> list[TopicPartition]:
        return self._open.partitions()

    def seal_open(self, partition: TopicPartition) -> None:
        batch = self._open.take(partition)
        if batch is not None:
            self._seal_batch(batch)

    def fail_open(self, partition: TopicPartition, error: TidelogError) -> None:
        """Fails the records in a partition's open batch."""
        batch = self._open.take(partition)
        if batch is not None:
            self._budget.give_back(batch.size_bytes)
            self._report(None, partition, len(batch.values), batch.waiters, (), error)

    def count(self) -> int:
        """Returns the number of batches without an outcome, open ones included."""
        return len(self._unsettled) + len(self._open.partitions())

    def forget_removed(self) -> None:
        """Forgets the chosen partitions of topics that metadata has forgotten."""
        self._sticky.forget_removed(self._metadata.cached_topic)

    def unsettled(self) -> set[asyncio.Future[None]]:
        """Returns a future for each sealed batch, which is done when the batch has an outcome."""
        return set(self._unsettled)

    def _place(
        self, topic: str, known: KnownTopic, key: bytes | None, requested: int | None, now_ms: int
    ) -> TopicPartition:
        if requested is not None:
            return TopicPartition(topic, requested)
        if known.partitions == 1:
            return TopicPartition(topic, 0)
        if key is not None:
            return TopicPartition(topic, partition_for_key(key, known.partitions))
        current = self._sticky.current(topic)
        if current is not None and current < known.partitions:
            to = TopicPartition(topic, current)
            # A batch that gathers longer may have a slower leader than others.
            if not self._open.has_lingered(to, now_ms):
                return to
        return TopicPartition(topic, self._sticky.move(topic, usable_partitions(known)))

    def _seal_batch(self, batch: OpenBatch) -> None:
        topic, partition = batch.partition
        if self._sticky.current(topic) == partition:
            known = self._metadata.cached_topic(topic)
            if known is not None:
                self._sticky.move(topic, usable_partitions(known))
        self._seal(
            batch.partition,
            OutgoingBatch(
                batch.encode(self._codec),
                batch.size_bytes,
                batch.deadline_ms,
                batch.waiters,
                batch.timestamps_ms,
                batch.movable,
                batch.trace_context,
            ),
        )

    def _seal(
        self, partition: TopicPartition, outgoing: OutgoingBatch
    ) -> DeliveryFuture[BatchReport]:
        loop = asyncio.get_running_loop()
        pending = _Pending(DeliveryFuture.new(loop), loop.create_future())
        self._unsettled.add(pending.settled)
        self._ship(partition, outgoing, pending)
        return pending.report

    def _ship(self, partition: TopicPartition, outgoing: OutgoingBatch, pending: _Pending) -> None:
        on_settled = partial(self._settled, partition, outgoing, pending)
        try:
            # Such a batch would make its entire request fail, or make it invalid.
            check_batch_bytes(partition, len(outgoing.encoded.records))
        except TidelogError as error:
            on_settled(error)
            return
        self._accumulator.seal(
            partition,
            outgoing.encoded,
            deadline_ms=outgoing.deadline_ms,
            on_settled=on_settled,
            trace_context=outgoing.trace_context,
        )
        self._wake()

    def _settled(
        self,
        partition: TopicPartition,
        outgoing: OutgoingBatch,
        pending: _Pending,
        outcome: Outcome,
    ) -> None:
        report: DeliveryFuture[BatchReport] | None = pending.report
        moved = self._moved(partition, outgoing, pending, outcome)
        if moved is not None:
            if moved.others is None:
                return
            # The report belongs to the records that were moved.
            outgoing, report = moved.others, None
        else:
            self._unsettled.discard(pending.settled)
            pending.settled.set_result(None)
        self._budget.give_back(outgoing.size_bytes)
        self._report(
            report,
            partition,
            outgoing.encoded.record_count,
            outgoing.waiters,
            outgoing.timestamps_ms,
            outcome,
        )

    def _moved(
        self,
        partition: TopicPartition,
        outgoing: OutgoingBatch,
        pending: _Pending,
        outcome: Outcome,
    ) -> _Moved | None:
        """Sends records that may go to any partition to another one, if their own is gone and the
        producer has not ended. Excludes records that may be written already: they could be written
        twice."""
        gone = (
            isinstance(outcome, TidelogError)
            and outcome.code in FINAL_ANSWERS
            and not outcome.outcome_unknown
            and self._accumulator.fatal is None
        )
        known = self._metadata.cached_topic(partition.topic) if gone else None
        if known is None or not outgoing.movable:
            return None
        movable, others = outgoing.split()
        to = self._sticky.move(partition.topic, usable_partitions(known))
        self._ship(TopicPartition(partition.topic, to), movable, pending)
        return _Moved(others)

    def _report(
        self,
        report: DeliveryFuture[BatchReport] | None,
        partition: TopicPartition,
        count: int,
        waiters: Sequence[DeliveryFuture[Delivery]],
        timestamps_ms: Sequence[int],
        outcome: Outcome,
    ) -> None:
        made = settle(report, waiters, timestamps_ms, partition, count, outcome)
        if self._on_delivery is None:
            return
        # The event loop reports what the callback raises.
        asyncio.get_running_loop().call_soon(self._on_delivery, made)
        for future in (report, *waiters):
            if future is not None:
                mark_seen(future)
