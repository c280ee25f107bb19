"""Which of the records that a read has scanned are its result. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

from tidelog.errors import RecordsDamagedError
from tidelog.model import OnDamage, Record
from tidelog_admin_api.error_mappings import ErrorMapping
from tidelog_admin_api.problems import ProblemError

# Damaged ranges that one read skips. The next read continues after them.
MAX_DAMAGED_RANGES = 100
# Maximum size of a record, including HEADER_BYTES. As JSON it can be six times as large, and is
# written in one turn of the event loop.
MAX_RECORD_BYTES = 2 << 20
# Added to the size of each header, since an empty header is also an object in the answer.
HEADER_BYTES = 256


class ReadBound(NamedTuple):
    """The limits of a read, and the records that it selects.

    - `max_bytes`: maximum size of keys, values and headers. A single record is returned even if it
      is larger, up to MAX_RECORD_BYTES. A read backwards leaves out the oldest records beyond the
      limit. It leaves out a record above MAX_RECORD_BYTES and all older ones.
    - `max_scanned`: maximum number of records to read, including records with other keys
    - `key`: select only records with this key; None: all records
    - `wait_ms`: how long to wait for a first record if there is none yet
    - `timeout_ms`: timeout of the whole read
    - `on_damage`: how to treat records that are damaged on the last disk that held them, as in
      `Consumer`
    """

    max_records: int
    max_bytes: int
    max_scanned: int
    wait_ms: int
    timeout_ms: int
    key: bytes | None = None
    on_damage: OnDamage = OnDamage.RAISE


class DamagedRange(NamedTuple):
    """Offsets from `first_offset` up to, but not including, `next_offset`."""

    first_offset: int
    next_offset: int


class Collecting:
    """Selects the first records that fit into the bound, or with `keeps_newest` the last ones.

    - `until`: for a read backwards, the offset before which it ends
    """

    def __init__(
        self,
        bound: ReadBound,
        begin: int,
        *,
        until: int | None = None,
        keeps_newest: bool = False,
    ) -> None:
        # All selected records from here up to `next_offset` are kept.
        self.first_offset = begin
        self.next_offset = begin
        self.is_full = False
        self.damaged: deque[DamagedRange] = deque()
        self.keeps_newest = keeps_newest
        self._bound = bound
        self._until = until
        self._kept: deque[Record] = deque()
        self._bytes = 0
        self._scanned = 0
        # Why a read backwards has no records, if something prevents it.
        self._failure: Exception | None = None

    @property
    def records(self) -> list[Record]:
        return list(self._kept)

    def add(self, polled: Iterable[Record]) -> None:
        for record in polled:
            if self._until is not None and record.offset >= self._until:
                self.next_offset = self._until
                self.is_full = True
                return
            if not self.is_full and self._is_selected(record):
                self._keep(record)
            if self.is_full:
                return
            self._scanned += 1
            self.next_offset = record.offset + 1
            self.is_full = self._scanned >= self._bound.max_scanned or (
                not self.keeps_newest and len(self._kept) >= self._bound.max_records
            )

    def damage(self, error: RecordsDamagedError) -> bool:
        """Handles damaged records. Returns whether the read continues behind them.

        Raises `error` if they are not to be skipped and there are no records before them. A read
        backwards keeps the records behind them.
        """
        if self._bound.on_damage is OnDamage.SKIP:
            self._skip(DamagedRange(error.first_offset, error.next_offset))
            return True
        if self._until is not None:
            self._begin_again(error.next_offset, error)
            return True
        if self.keeps_newest or not self._kept:
            raise error
        return False

    def raise_failure(self) -> None:
        """Raises what prevents a read backwards, if it has no records."""
        if not self._kept and self._failure is not None:
            raise self._failure

    def advance(self, position: int | None) -> None:
        """Advances to the consumer's position, after all polled records were added."""
        if not self.is_full and position is not None:
            self.next_offset = max(self.next_offset, position)

    def _skip(self, damaged: DamagedRange) -> None:
        self.damaged.append(damaged)
        self.next_offset = max(self.next_offset, damaged.next_offset)
        if len(self.damaged) < MAX_DAMAGED_RANGES:
            return
        if not self.keeps_newest:
            self.is_full = True
        elif len(self.damaged) > MAX_DAMAGED_RANGES:
            self._drop_before(self.damaged.popleft().next_offset)

    def _is_selected(self, record: Record) -> bool:
        return self._bound.key is None or record.key == self._bound.key

    def _keep(self, record: Record) -> None:
        size = size_of(record)
        if size > MAX_RECORD_BYTES:
            self._leave_out(record, size)
            return
        if self._kept and self._bytes + size > self._bound.max_bytes and not self.keeps_newest:
            self.is_full = True
            return
        self._kept.append(record)
        self._bytes += size
        while len(self._kept) > 1 and self._is_over():
            self._drop_before(self._kept[1].offset)

    def _leave_out(self, record: Record, size: int) -> None:
        following = record.offset + 1
        if self.keeps_newest:
            # The older records do not fit either.
            self._begin_again(following, _too_large(record, size, "before_offset", record.offset))
        elif self._kept:
            self.is_full = True
        else:
            raise _too_large(record, size, "offset", following)

    def _begin_again(self, offset: int, failure: Exception) -> None:
        self._drop_before(offset)
        self.next_offset = max(self.next_offset, offset)
        self._failure = failure

    def _drop_before(self, offset: int) -> None:
        while self._kept and self._kept[0].offset < offset:
            self._bytes -= size_of(self._kept.popleft())
        self.first_offset = max(self.first_offset, offset)

    def _is_over(self) -> bool:
        bound = self._bound
        return len(self._kept) > bound.max_records or self._bytes > bound.max_bytes


def size_of(record: Record) -> int:
    """Returns the size that counts for limits, with HEADER_BYTES for each header."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(HEADER_BYTES + len(name) + len(value) for name, value in record.headers)


def _too_large(record: Record, size: int, parameter: str, offset: int) -> ProblemError:
    """Returns the error of a record that no answer holds.

    - `parameter`, `offset`: how to continue on its other side
    """
    return ProblemError(
        "RECORD_TOO_LARGE",
        ErrorMapping(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "OUT_OF_RANGE",
            f"Read it with a client, or continue with {parameter}={offset}.",
        ),
        f"the record at offset {record.offset} has {size} bytes; the gateway returns "
        f"records of at most {MAX_RECORD_BYTES} bytes",
    )
