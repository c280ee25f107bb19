"""Values of records: each is unique in its history, and can be parsed from a record's bytes.
Pure."""

from __future__ import annotations

from itertools import count

from tidelog.history import UNREADABLE_VALUE

VALUE_DIGITS = 20
RECORD_BYTES = 100
# Each client counts up from its own number, so that clients need not coordinate.
CLIENT_SHIFT = 32
_FILLER = b"." * (RECORD_BYTES - VALUE_DIGITS)


def values_of_client(number: int) -> count[int]:
    return count(number << CLIENT_SHIFT)


def payload(value: int) -> bytes:
    return b"%0*d" % (VALUE_DIGITS, value) + _FILLER


def value_of(record: bytes | None) -> int:
    """UNREADABLE_VALUE for other bytes."""
    if record is None or len(record) != RECORD_BYTES or not record[:VALUE_DIGITS].isdigit():
        return UNREADABLE_VALUE
    return int(record[:VALUE_DIGITS])
