"""Limits on the work that one batch of records can cause, the same for producers, brokers and
readers. No I/O.

A limit on bytes does not bound work: an empty record or header takes a byte or two on the wire,
far less when compressed, and an object in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.errors import ErrorCode, TidelogError

# Range of a topic's max_batch_records. The batches of every producer are within the lowest value.
LOWEST_MAX_BATCH_RECORDS = 16_384
HIGHEST_MAX_BATCH_RECORDS = 1_000_000
DEFAULT_MAX_BATCH_RECORDS = 100_000
# Highest max_batch_bytes of a topic. No leader accepts a larger batch.
HIGHEST_MAX_BATCH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """What a batch may hold to be appended.

    - `max_batch_records`: records of a batch; a topic's `max_batch_records` may be lower.
    - `max_decoded_bytes`: bytes of its decompressed RecordBatch message.
    - `max_headers_per_record`, `max_batch_headers`: headers of one record, and of all records.
    - `max_header_name_bytes`, `max_key_bytes`: bytes of a header's name and of a record's key.
    """

    max_batch_records: int = HIGHEST_MAX_BATCH_RECORDS
    # Enough for a batch of the highest max_batch_bytes with a compression ratio of four to one.
    max_decoded_bytes: int = 64 << 20
    max_headers_per_record: int = 1_000
    max_batch_headers: int = 100_000
    max_header_name_bytes: int = 1_024
    max_key_bytes: int = 64 << 10


RECORD_LIMITS = RecordLimits()

# Headers that a reader decodes: of a batch, of a batch that is decoded in one step instead of in
# slices, and of one record. They are higher than the limits above because logs may hold batches
# that were written before those limits, or by another writer.
MAX_READ_HEADERS = 4_000_000
MAX_READ_HEADERS_AT_ONCE = 1_000_000
MAX_READ_HEADERS_PER_RECORD = 100_000


def check_key_size(size_bytes: int, limits: RecordLimits = RECORD_LIMITS) -> None:
    """Raises `TidelogError` (INVALID_BATCH)."""
    if size_bytes > limits.max_key_bytes:
        raise invalid_batch(
            f"a key has {size_bytes} bytes; a key has at most {limits.max_key_bytes}, a "
            "fixed limit: put the rest into the value"
        )


def check_header_count(count: int, limits: RecordLimits = RECORD_LIMITS) -> None:
    """`count`: headers of one record. Raises `TidelogError` (INVALID_BATCH)."""
    if count > limits.max_headers_per_record:
        raise invalid_batch(
            f"a record has {count} headers; it has at most {limits.max_headers_per_record}, "
            "a fixed limit: put the rest into the value"
        )


def check_header_names(sizes: Iterable[int], limits: RecordLimits = RECORD_LIMITS) -> None:
    """`sizes`: bytes of each name in UTF-8. Raises `TidelogError` (INVALID_BATCH)."""
    longest = max(sizes, default=0)
    if longest > limits.max_header_name_bytes:
        raise invalid_batch(
            f"the name of a header has {longest} bytes; it has at most "
            f"{limits.max_header_name_bytes}, a fixed limit: put the rest into its value"
        )


def check_record_count(count: int, max_records: int) -> None:
    """`max_records`: the limit of the batch's topic. Raises `TidelogError` (INVALID_BATCH)."""
    if count > max_records:
        raise invalid_batch(
            f"a batch has {count} records; it has at most {max_records} (max_batch_records): "
            "send several batches"
        )


def check_batch_bytes(partition: object, size_bytes: int) -> None:
    """`size_bytes`: the batch's size on the wire. Raises `TidelogError` (BATCH_TOO_LARGE)."""
    if size_bytes > HIGHEST_MAX_BATCH_BYTES:
        raise TidelogError(
            ErrorCode.BATCH_TOO_LARGE,
            f"a batch for {partition} has {size_bytes} bytes; a topic takes at most "
            f"{HIGHEST_MAX_BATCH_BYTES} (the highest max_batch_bytes): send smaller records, or "
            "compress them",
        )


def invalid_batch(message: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_BATCH, message)
