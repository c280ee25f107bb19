"""The acknowledged records, and those that are read back. Pure.

Every record has a unique serial number, with which its value begins."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.model import NO_OFFSET

SERIAL_BYTES = 8
# The size of a record's value: 64 of them fill a batch of 64 KiB.
VALUE_BYTES = 1000
_PADDING = bytes(i % 251 for i in range(VALUE_BYTES - SERIAL_BYTES))
_NONE = -1


@dataclass(frozen=True, slots=True)
class ReadBack:
    """The records that were read at the end, compared with the acknowledged ones.

    - `acknowledged`, `read`: numbers of records.
    - `lost`: acknowledged and not read at their offset.
    - `duplicates`: read more than once.
    - `unexpected`: read at an offset that was not acknowledged; records of failed sends may be.
    """

    acknowledged: int
    read: int
    lost: int
    duplicates: int
    unexpected: int


class Ledger:
    """Partitions are numbered from 0; offsets are those of acknowledgements."""

    def __init__(self, partitions: int) -> None:
        # Serial numbers by offset.
        self._serials = [array("q") for _ in range(partitions)]
        self._taken = 0
        self._acknowledged = 0
        self._read = 0
        self._found = 0
        self._duplicates = 0
        self._unexpected = 0
        self._seen = bytearray()
        # Acknowledged without an offset.
        self._unplaced: set[int] = set()

    def take(self, count: int) -> int:
        """Reserves `count` serial numbers and returns the first."""
        first = self._taken
        self._taken += count
        return first

    def acknowledge(self, partition: int, base_offset: int, first_serial: int, count: int) -> None:
        """Records acknowledged records with consecutive serial numbers and offsets.

        - `base_offset`: NO_OFFSET: the offset is unknown.
        """
        self._acknowledged += count
        if base_offset == NO_OFFSET:
            self._unplaced.update(range(first_serial, first_serial + count))
            return
        serials = self._serials[partition]
        end = base_offset + count
        if len(serials) < end:
            serials.extend([_NONE] * (end - len(serials)))
        for step in range(count):
            # An offset that is acknowledged twice counts twice, and can be found once.
            serials[base_offset + step] = first_serial + step

    def note_read(self, partition: int, first_offset: int, values: Sequence[bytes | None]) -> None:
        """Records the values that were read at consecutive offsets, each offset once."""
        if len(self._seen) < self._taken:
            self._seen.extend(bytes(self._taken - len(self._seen)))
        known = self._serials[partition]
        self._read += len(values)
        for offset, value in enumerate(values, first_offset):
            serial = serial_of(value)
            if serial is None or serial >= self._taken:
                continue  # unknown; lost, if a record was acknowledged here
            is_again = self._seen[serial]
            self._seen[serial] = 1
            self._duplicates += is_again
            expected = known[offset] if offset < len(known) else _NONE
            if serial == expected or (serial in self._unplaced and not is_again):
                self._found += 1
            elif expected == _NONE and not is_again:
                self._unexpected += 1

    def read_back(self) -> ReadBack:
        return ReadBack(
            self._acknowledged,
            self._read,
            self._acknowledged - self._found,
            self._duplicates,
            self._unexpected,
        )


def value_of(serial: int) -> bytes:
    return serial.to_bytes(SERIAL_BYTES) + _PADDING


def serial_of(value: bytes | None) -> int | None:
    """Returns None for a value that `value_of` does not make."""
    if value is None or len(value) != VALUE_BYTES or value[SERIAL_BYTES:] != _PADDING:
        return None
    return int.from_bytes(value[:SERIAL_BYTES])
