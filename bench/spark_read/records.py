"""The records of both logs, and the ranges that are read. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

KEY_BYTES = 8
FILLER = "x"
# This many records have the same timestamp.
RECORDS_PER_MS = 200


class Totals(NamedTuple):
    """Totals over all rows that were read."""

    rows: int
    key_bytes: int
    value_bytes: int


def totals_of(records: int, value_bytes: int) -> Totals:
    return Totals(records, records * KEY_BYTES, records * value_bytes)


def key_of(number: int) -> bytes:
    return b"%0*d" % (KEY_BYTES, number)


def value_of(number: int, value_bytes: int) -> bytes:
    return b"%d" % number + FILLER.encode() * (value_bytes - len(str(number)))


def in_partition(partition: int, records: int, partitions: int) -> range:
    """Returns the numbers of a partition's records, which are distributed evenly."""
    return range(
        partition * records // partitions,
        (partition + 1) * records // partitions,
    )


def chunks(numbers: range, size: int) -> Iterator[range]:
    for first in range(0, len(numbers), size):
        yield numbers[first : first + size]


def ends(records: int, partitions: int) -> list[int]:
    """Returns the offset after the last record of each partition."""
    return [len(in_partition(p, records, partitions)) for p in range(partitions)]


def offsets_option(topic: str, offsets: Sequence[int]) -> str:
    """Returns the value of the options `startingOffsets` and `endingOffsets` of both sources."""
    return json.dumps({topic: {str(p): offset for p, offset in enumerate(offsets)}})
