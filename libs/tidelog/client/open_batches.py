"""Records that gather until their batch is full, or has lingered and can be sent. No I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.client.delivery import Delivery
from tidelog.model import Codec, TopicPartition
from tidelog.record_batch import EncodedRecords, Headers, encode_records
from tidelog.rpc.trace_context import Metadata, captured

# Bounds a batch of records that are empty or nearly so.
MAX_BATCH_RECORDS = 16_384
# So much longer than it lingers a batch gathers where it could not be sent.
MAX_GATHERING_MS = 100


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Bytes of key, value and headers, which is what batches and buffers count."""
    size = 0
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += len(name) + len(content)
    return size


@dataclass(slots=True, eq=False)
class OpenBatch:
    partition: TopicPartition
    opened_ms: int
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)
    waiters: list[asyncio.Future[Delivery]] = field(default_factory=list)
    size_bytes: int = 0
    # Of the user's span in which its first record was sent.
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
    """One open batch a partition, in the order in which they were opened: linger is the
    same for all, so the first is always the next that is due."""

    def __init__(self, batch_bytes: int, linger_ms: int) -> None:
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self._open: dict[TopicPartition, OpenBatch] = {}

    def would_fill(self, partition: TopicPartition, size_bytes: int) -> bool:
        """Whether the partition's open batch has no room for a record of this size."""
        batch = self._open.get(partition)
        return batch is not None and batch.size_bytes + size_bytes > self._batch_bytes

    def add(
        self,
        partition: TopicPartition,
        now_ms: int,
        size_bytes: int,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        waiter: asyncio.Future[Delivery],
    ) -> bool:
        """Returns whether the batch is full now. The caller has made room before."""
        batch = self._open.get(partition)
        if batch is None:
            batch = self._open[partition] = OpenBatch(partition, now_ms, trace_context=captured())
        if headers:
            batch.headers[len(batch.values)] = headers
        batch.keys.append(key)
        batch.values.append(value)
        batch.timestamps_ms.append(timestamp_ms)
        batch.waiters.append(waiter)
        batch.size_bytes += size_bytes
        return batch.size_bytes >= self._batch_bytes or len(batch.values) >= MAX_BATCH_RECORDS

    def count(self, partition: TopicPartition) -> int:
        """How many records the partition's open batch has."""
        batch = self._open.get(partition)
        return 0 if batch is None else len(batch.values)

    def take(self, partition: TopicPartition) -> OpenBatch | None:
        return self._open.pop(partition, None)

    def take_due(
        self, now_ms: int, can_go: Callable[[TopicPartition], bool]
    ) -> tuple[list[OpenBatch], int | None]:
        """Those that have lingered and can go; and when to ask again at the latest, None: when
        one has been added. What cannot go gathers on: many small batches cost all that are on
        their way more than one of as many records does."""
        due: list[OpenBatch] = []
        next_ms = None
        for batch in self._open.values():
            lingered_ms = batch.opened_ms + self._linger_ms
            if lingered_ms <= now_ms < lingered_ms + MAX_GATHERING_MS:
                if can_go(batch.partition):
                    due.append(batch)
                elif next_ms is None:
                    next_ms = lingered_ms + MAX_GATHERING_MS
            elif lingered_ms <= now_ms:
                due.append(batch)
            else:
                next_ms = lingered_ms if next_ms is None else min(next_ms, lingered_ms)
                break
        for batch in due:
            del self._open[batch.partition]
        return due, next_ms

    def take_all(self) -> list[OpenBatch]:
        batches = list(self._open.values())
        self._open.clear()
        return batches
