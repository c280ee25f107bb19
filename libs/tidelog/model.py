"""Types that client, broker and controller share. Plain values, no I/O.

Batches are named tuples instead of dataclasses: a broker makes one for each batch that it
transfers, and a named tuple costs a fifth of a frozen dataclass.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Generic, NamedTuple

if TYPE_CHECKING:
    # Until Python 3.13 only type checkers know defaults of type variables.
    from typing_extensions import TypeVar

    Key_co = TypeVar("Key_co", covariant=True, default=bytes)
    Value_co = TypeVar("Value_co", covariant=True, default=bytes)
else:
    from typing import TypeVar

    Key_co = TypeVar("Key_co", covariant=True)
    Value_co = TypeVar("Value_co", covariant=True)

# The highest partition number and broker id: both are int32 on the wire.
MAX_INT32 = 2**31 - 1
NO_LEADER = -1
NO_EPOCH = -1
NO_PRODUCER_ID = -1
# Ids from here on belong to named producers.
FIRST_NAMED_PRODUCER_ID = 1 << 62
NO_OFFSET = -1


class Codec(enum.IntEnum):
    """How a batch is compressed. The values are those on the wire and on disk."""

    NONE = 0
    GZIP = 1
    LZ4 = 2
    ZSTD = 3


class OnDamage(enum.Enum):
    """What a consumer does with records that were damaged on the last disk that held them."""

    RAISE = "raise"
    SKIP = "skip"


class Acks(enum.IntEnum):
    """When a broker acknowledges a produced batch. The values are those of the wire."""

    NONE = 1
    LEADER = 2
    ALL = 3


class OffsetPosition(enum.IntEnum):
    """Which offset a ListOffsets request asks for. The values are those of the wire."""

    EARLIEST = 1
    LATEST = 2
    TIMESTAMP = 3


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class BatchHeader(NamedTuple):
    """What brokers know of a batch without decompressing it; `record_batch.proto` documents each
    field."""

    base_offset: int
    leader_epoch: int
    append_time_ms: int
    broker_crc32c: int
    crc32c: int
    codec: int
    record_count: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    def next_offset(self) -> int:
        """The offset after the last record of the batch."""
        return self.base_offset + self.record_count


class Batch(NamedTuple):
    """A batch on the wire: `records` is a serialized and possibly compressed RecordBatch."""

    header: BatchHeader
    records: bytes


class EpochEnd(NamedTuple):
    """A leader epoch and the first offset after it. NO_EPOCH: there is no such epoch."""

    leader_epoch: int
    end_offset: int


class LeaderHint(NamedTuple):
    broker_id: int
    leader_epoch: int
    address: str


class Record(NamedTuple, Generic[Key_co, Value_co]):
    """One record as a consumer receives it.

    `Record` alone has bytes as key and value. `Record[str, Tide]` has what the deserializers of its
    consumer return; null keys and values stay None."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Key_co | None
    value: Value_co | None
    headers: tuple[tuple[str, bytes], ...]
    leader_epoch: int
