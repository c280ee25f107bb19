"""Batches that gather records until they are full, or have lingered and are due. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from tidelog.client.delivery import Delivery, DeliveryFuture
from tidelog.model import Codec, TopicPartition
from tidelog.record_batch import EncodedRecords, Headers, encode_records
from tidelog.record_limits import LOWEST_MAX_BATCH_RECORDS, RECORD_LIMITS
from tidelog.rpc.trace_context import Metadata, captured

# Limits for batches whose records, or headers, are empty or nearly so.
MAX_BATCH_RECORDS = LOWEST_MAX_BATCH_RECORDS
MAX_BATCH_HEADERS = RECORD_LIMITS.max_batch_headers
# How long an unanswered request delays a partial batch, and how much longer than its linger time a
# batch gathers at most, whatever it waits for.
MAX_GATHERING_MS = 100


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Returns the bytes of key, value and headers, which count for batches and buffers."""
    size = (0 if key is None else len(key)) + (0 if value is None else len(value))
    for name, content in headers:
        size += len(name) + len(content)
    return size


def headers_bytes(headers: Headers) -> int:
    """Returns what the headers add to `record_bytes`."""
    return record_bytes(None, None, headers)


# Key, value, headers, timestamp (milliseconds since 1970), and the future of the delivery.
OpenRecord = tuple[bytes | None, bytes | None, Headers, int, DeliveryFuture[Delivery]]


@dataclass(slots=True, eq=False)
class OpenBatch:
    partition: TopicPartition
    opened_ms: int
    # The deadline of the first record, counted from its `send`.
    deadline_ms: int
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)
    waiters: list[DeliveryFuture[Delivery]] = field(default_factory=list)
    # Positions of records that may go to any partition: no key, and no partition was requested.
    movable: list[int] = field(default_factory=list)
    size_bytes: int = 0
    header_count: int = 0
    # Trace context of the user's span in which the first record was sent.
    trace_context: Metadata | None = None

    def encode(self, codec: Codec) -> EncodedRecords:
        return encode_records(
            self.values,
            self.keys,
            timestamps_ms=self.timestamps_ms,
            headers=self.headers,
            codec=codec,
        )


class OpenBatches:
    """At most one open batch per partition, in order of opening. The linger time is the same for
    all, so the first batch is always the next one that has lingered."""

    def __init__(self, batch_bytes: int, linger_ms: int) -> None:
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self._open: dict[TopicPartition, OpenBatch] = {}

    def get(self, partition: TopicPartition) -> OpenBatch | None:
        return self._open.get(partition)

    def open(self, partition: TopicPartition, now_ms: int, deadline_ms: int) -> OpenBatch:
        """Opens a batch for a partition that has none. `deadline_ms`: of its first record."""
        batch = OpenBatch(partition, now_ms, deadline_ms, trace_context=captured())
        self._open[partition] = batch
        return batch

    def would_fill(self, batch: OpenBatch, size_bytes: int, headers: int) -> bool:
        """Returns whether an open batch has no room for a record with this size and these
        headers."""
        return (
            batch.size_bytes + size_bytes > self._batch_bytes
            or batch.header_count + headers > MAX_BATCH_HEADERS
        )

    def add(
        self, batch: OpenBatch, size_bytes: int, record: OpenRecord, *, movable: bool = False
    ) -> bool:
        """Adds a record; returns whether the batch is full now. The caller has checked for room."""
        key, value, headers, timestamp_ms, waiter = record
        if headers:
            batch.headers[len(batch.values)] = headers
            batch.header_count += len(headers)
        if movable:
            batch.movable.append(len(batch.values))
        batch.keys.append(key)
        batch.values.append(value)
        batch.timestamps_ms.append(timestamp_ms)
        batch.waiters.append(waiter)
        batch.size_bytes += size_bytes
        return batch.size_bytes >= self._batch_bytes or len(batch.values) >= MAX_BATCH_RECORDS

    def partitions(self) -> list[TopicPartition]:
        """Returns the partitions that have an open batch."""
        return list(self._open)

    def take(self, partition: TopicPartition) -> OpenBatch | None:
        return self._open.pop(partition, None)

    def has_lingered(self, partition: TopicPartition, now_ms: int) -> bool:
        """Returns whether the batch has gathered for longer than its linger time."""
        batch = self._open.get(partition)
        return batch is not None and self._lingered_ms(batch) < now_ms

    def last_is_next(self, now_ms: int) -> bool:
        """Returns whether all batches but the last one have lingered. Then no wake-up is scheduled
        for the last one."""
        before = next(islice(reversed(self._open.values()), 1, None), None)
        return before is None or self._lingered_ms(before) <= now_ms

    def _lingered_ms(self, batch: OpenBatch) -> int:
        return batch.opened_ms + self._linger_ms

    def take_due(
        self, now_ms: int, gathers_until: Callable[[TopicPartition], int]
    ) -> tuple[list[OpenBatch], int | None]:
        """Removes and returns the batches that are due, and the time of the next call at the
        latest; None: no batch is open. A batch that has lingered is due, or gathers until the time
        that `gathers_until` gives for its partition, for MAX_GATHERING_MS at most."""
        due: list[OpenBatch] = []
        next_ms = None
        for batch in self._open.values():
            until_ms = lingered_ms = self._lingered_ms(batch)
            if lingered_ms <= now_ms:
                bound_ms = lingered_ms + MAX_GATHERING_MS
                until_ms = min(bound_ms, gathers_until(batch.partition))
            if until_ms <= now_ms:
                due.append(batch)
                continue
            next_ms = until_ms if next_ms is None else min(next_ms, until_ms)
            if lingered_ms > now_ms:
                break
        for batch in due:
            del self._open[batch.partition]
        return due, next_ms
