"""Limits on the work that one batch of records can cause: named, with defaults, and the same for
producers, brokers and readers. Pure.

Bytes alone do not bound work: an empty record or header takes a byte or two on the wire, compressed
far less, and an object in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.errors import ErrorCode, TidelogError

# What a topic's max_batch_records may be: every producer's batches fit the lowest.
LOWEST_MAX_BATCH_RECORDS = 16_384
HIGHEST_MAX_BATCH_RECORDS = 1_000_000
DEFAULT_MAX_BATCH_RECORDS = 100_000
# What a topic's max_batch_bytes may be: no leader takes a larger batch, whatever its topic.
HIGHEST_MAX_BATCH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """What a batch may hold to be appended.

    - `max_batch_records`: records of a batch; a topic's `max_batch_records` may be lower.
    - `max_decoded_bytes`: its RecordBatch message once decompressed.
    - `max_headers_per_record`, `max_batch_headers`: headers of one record, and of all records.
    - `max_header_name_bytes`, `max_key_bytes`: a header's name and a record's key.
    """

    max_batch_records: int = HIGHEST_MAX_BATCH_RECORDS
    max_decoded_bytes: int = 64 << 20
    max_headers_per_record: int = 1_000
    max_batch_headers: int = 100_000
    max_header_name_bytes: int = 1_024
    max_key_bytes: int = 64 << 10


RECORD_LIMITS = RecordLimits()

# What readers open, who may find batches from before these limits, or from another writer: headers
# of a batch, of one that is opened at once and not in slices, and of one record.
MAX_READ_HEADERS = 4_000_000
MAX_READ_HEADERS_AT_ONCE = 1_000_000
MAX_READ_HEADERS_PER_RECORD = 100_000


def check_key_size(size_bytes: int, limits: RecordLimits = RECORD_LIMITS) -> None:
    """Raises `TidelogError` (INVALID_BATCH)."""
    if size_bytes > limits.max_key_bytes:
        raise invalid_batch(
            f"a key has {size_bytes} bytes; a key has at most {limits.max_key_bytes} "
            "(max_key_bytes): put the rest into the value"
        )


def check_header_count(count: int, limits: RecordLimits = RECORD_LIMITS) -> None:
    """Of one record. Raises `TidelogError` (INVALID_BATCH)."""
    if count > limits.max_headers_per_record:
        raise invalid_batch(
            f"a record has {count} headers; it has at most {limits.max_headers_per_record} "
            "(max_headers_per_record): put the rest into the value"
        )


def check_header_names(sizes: Iterable[int], limits: RecordLimits = RECORD_LIMITS) -> None:
    """`sizes`: bytes of each name in UTF-8. Raises `TidelogError` (INVALID_BATCH)."""
    longest = max(sizes, default=0)
    if longest > limits.max_header_name_bytes:
        raise invalid_batch(
            f"the name of a header has {longest} bytes; it has at most "
            f"{limits.max_header_name_bytes} (max_header_name_bytes): put the rest into its value"
        )


def check_record_count(count: int, max_records: int) -> None:
    """`max_records`: of the batch's topic. Raises `TidelogError` (INVALID_BATCH)."""
    if count > max_records:
        raise invalid_batch(
            f"a batch has {count} records; it has at most {max_records} (max_batch_records): "
            "send several batches"
        )


def check_batch_bytes(partition: object, size_bytes: int) -> None:
    """Of a batch as it travels. Raises `TidelogError` (BATCH_TOO_LARGE)."""
    if size_bytes > HIGHEST_MAX_BATCH_BYTES:
        raise TidelogError(
            ErrorCode.BATCH_TOO_LARGE,
            f"a batch for {partition} has {size_bytes} bytes; a topic takes at most "
            f"{HIGHEST_MAX_BATCH_BYTES} (the highest max_batch_bytes): send smaller records, or "
            "compress them",
        )


def invalid_batch(message: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_BATCH, message)
