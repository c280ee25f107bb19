"""Checks that the columns of a batch's records are consistent. Pure functions that raise
INVALID_BATCH."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import BatchHeader

NULL_LENGTH = -1


def check_count(column: str, entries: int, count: int) -> None:
    if entries != count:
        raise invalid(
            f"{column} has {entries} entries but record_count is {count}; "
            "there is one for each record"
        )


def keys_without_lengths(key_bytes: int) -> TidelogError:
    return invalid(
        f"keys holds {key_bytes} bytes but key_lengths is empty; "
        "give each key its length, or leave both empty when every key is null"
    )


def check_ascending(indexes: Sequence[int], first: int, count: int) -> None:
    """`first`: the lowest index that is allowed."""
    previous = first
    for index in indexes:
        if not previous <= index < count:
            raise invalid(
                f"a header has record_index {index}; indexes ascend "
                f"from 0 to {count - 1} (record_count - 1)"
            )
        previous = index


def check_lengths(column: str, lengths: list[int], data_bytes: int) -> None:
    """Checks that each length is valid and that they add up to the data."""
    shortest = min(lengths)
    if shortest < NULL_LENGTH:
        raise invalid(f"{column}_lengths has {shortest}; a length is at least 0, or -1 for null")
    total = sum(lengths)
    if shortest == NULL_LENGTH:
        total += lengths.count(NULL_LENGTH)
    if total != data_bytes:
        raise invalid(
            f"{column}_lengths add up to {total} but {column}s holds {data_bytes} bytes; "
            "they must be equal"
        )


def check_timestamps(deltas: list[int], header: BatchHeader) -> None:
    base_ms = header.base_timestamp_ms
    if base_ms < 0:
        raise invalid(f"base_timestamp_ms is {base_ms}; it counts from 1970 and is at least 0")
    largest = 0
    if deltas:
        if len(deltas) != header.record_count:
            raise invalid(
                f"timestamp_deltas_ms has {len(deltas)} entries but record_count is "
                f"{header.record_count}; there is one for each record, or none when all are 0"
            )
        if deltas[0] != 0:
            raise invalid(
                f"the first timestamp delta is {deltas[0]}; it is 0, because "
                "base_timestamp_ms is the first record's"
            )
        largest = max(deltas)
    if header.max_timestamp_ms != base_ms + largest:
        raise invalid(
            f"max_timestamp_ms is {header.max_timestamp_ms} but the records' largest "
            f"timestamp is {base_ms + largest}"
        )


def check_earliest(deltas: list[int], header: BatchHeader) -> None:
    """Checks a batch that is to be appended. Logs may hold batches with earlier timestamps."""
    earliest_ms = header.base_timestamp_ms + min(deltas, default=0)
    if earliest_ms < 0:
        raise invalid(
            f"a record has timestamp {earliest_ms}; timestamps are milliseconds since 1970 (UTC), "
            "and at least 0"
        )


def invalid(message: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_BATCH, message)
