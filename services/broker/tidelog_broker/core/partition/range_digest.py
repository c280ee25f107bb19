"""Digests of the batches in ranges of offsets, by which replicas compare their logs ("Replica
digest" in docs/internals/protocol.md, docs/adr/0002). Pure.

The digest of a range is the sum, modulo 2^64, of one number for each batch whose base offset lies
in it. That number is the product of the two checksums in the header, which cover the records, the
offset, the leader epoch and the append time. So an append does not read the records, a part that is
read later can be added, and batches count the same in other segments or appends."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from tidelog.batch import DAMAGED_CODEC
from tidelog.model import NO_OFFSET, Batch, BatchHeader

# The version of `batch_digest`. It increases with every change.
DIGEST_VERSION = 1
RANGE_OFFSETS = 4_096
# The newest ranges of one log that are in memory. Older ones are read from the disk for a
# comparison.
MAX_KEPT_RANGES = 4_096
# Ranges of one log that wait to be reported. The oldest are dropped; the scrub reports them.
MAX_PENDING_RANGES = 256
# The newest ranges of a log that are read from the disk and reported after it was opened: it may
# have changed while the broker was down. The scrub reports the others.
MAX_READ_AGAIN = 256

_MASK = (1 << 64) - 1
# Added to both checksums, so that neither factor is 0.
_ADDED = 1 << 32


class RangeDigest(NamedTuple):
    """The digest of all batches whose base offset is in [`start`, `end`). The last one ends at
    `end`."""

    start: int
    end: int
    value: int

    def __str__(self) -> str:
        return f"{self.value:016x}"


def _is_shorter(digest: RangeDigest, current: RangeDigest, committed: int) -> bool:
    return digest.start == current.start and digest.end < current.end <= committed


class BatchSummary(NamedTuple):
    """What the digest of a batch is made of, and what a person needs to identify it."""

    base_offset: int
    record_count: int
    leader_epoch: int
    append_time_ms: int
    crc32c: int
    broker_crc32c: int

    @classmethod
    def of(cls, header: BatchHeader) -> BatchSummary:
        return cls(
            header.base_offset,
            header.record_count,
            header.leader_epoch,
            header.append_time_ms,
            header.crc32c,
            header.broker_crc32c,
        )

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.record_count

    def __str__(self) -> str:
        return (
            f"offset {self.base_offset}, {self.record_count} records, leader epoch "
            f"{self.leader_epoch}, append time {self.append_time_ms}, CRC32C {self.crc32c:08x}"
        )


def batch_digest(header: BatchHeader) -> int:
    """Returns what a batch adds to the digest of its range."""
    return (header.crc32c + _ADDED) * (header.broker_crc32c + _ADDED) & _MASK


def first_difference(own: Sequence[BatchSummary], other: Sequence[BatchSummary]) -> int:
    """Returns the base offset of the first batch that differs; NO_OFFSET: they are equal."""
    for one, two in zip(own, other, strict=False):
        if one != two:
            return min(one.base_offset, two.base_offset)
    longer = own if len(own) > len(other) else other
    shared = min(len(own), len(other))
    return longer[shared].base_offset if len(longer) > shared else NO_OFFSET


@dataclass(slots=True)
class RangeSum:
    """The sum of a range that may be incomplete at its start.

    - `covered_from`: `value` is the sum of all batches from here on.
    - `damaged`: a batch is unreadable, so that the range is not compared.
    - `beyond_value`: the sum of the batches as appended, minus `value`, which has the disk's
      content where that was read; None: a part was appended before this log was opened.
    """

    start: int
    covered_from: int
    end: int
    value: int = 0
    damaged: bool = False
    beyond_value: int | None = None

    @property
    def appended(self) -> int | None:
        """The sum of all batches as they were appended; None: unknown."""
        return None if self.beyond_value is None else self.value + self.beyond_value & _MASK

    def count_instead(self, value: int, covered_from: int) -> None:
        """Replaces the value by what the disk holds from `covered_from` on."""
        if self.beyond_value is not None:
            self.beyond_value += self.value - value
        self.value, self.covered_from = value, covered_from

    @property
    def digest(self) -> RangeDigest | None:
        """None: it is incomplete, or empty, or not to be compared."""
        if self.covered_from > self.start or self.damaged or self.end <= self.start:
            return None
        return RangeDigest(self.start, self.end, self.value & _MASK)


class RangeSums:
    """Adds batch after batch. `open` is the range of the next batch, unless that begins another
    one.

    Invariant: ranges begin at multiples of `range_offsets`, and a batch belongs to the range of its
    base offset."""

    def __init__(self, range_offsets: int, next_offset: int, *, is_covered: bool = False) -> None:
        """`is_covered`: no batch before `next_offset` belongs to its range."""
        self._range_offsets = range_offsets
        # An unreadable batch may reach into ranges behind that of its base offset.
        self._damaged_to = 0
        self._begin(next_offset, is_covered=is_covered)

    def _begin(self, next_offset: int, *, is_covered: bool) -> None:
        start = next_offset - next_offset % self._range_offsets
        self._bound = start + self._range_offsets
        self.open = RangeSum(start, start if is_covered else next_offset, next_offset)
        self.open.damaged = start < self._damaged_to
        if self.open.covered_from == start:
            self.open.beyond_value = 0

    def add(self, headers: Sequence[BatchHeader]) -> list[RangeSum]:
        """Adds contiguous batches. Returns the ranges that end with them."""
        if not headers:
            return []
        closed: list[RangeSum] = []
        current = self.open
        value, bound = current.value, self._bound
        # Inlines `batch_digest` and unpacks fields by position, because this runs for each append.
        for base, _, _, broker_crc, crc, codec, count, _, _, _, _, _ in headers:
            if base >= bound:
                current.end, current.value = base, value
                closed.append(current)
                self._begin(base, is_covered=True)
                current, value, bound = self.open, 0, self._bound
            value += (crc + _ADDED) * (broker_crc + _ADDED)
            if codec == DAMAGED_CODEC:
                current.damaged = True
                self._damaged_to = base + count
        current.end, current.value = headers[-1].next_offset, value & _MASK
        return closed

    def copy(self) -> RangeSums:
        sums = RangeSums(self._range_offsets, self.open.end)
        sums.open, sums._bound = replace(self.open), self._bound
        sums._damaged_to = self._damaged_to
        return sums


class LogDigests:
    """The digests of one log, which appends and cuts update. `range_offsets` 0: there are none.

    `generation` changes with every cut: what was read from the disk before is outdated."""

    def __init__(self, range_offsets: int, log_end: int) -> None:
        self.range_offsets = range_offsets
        self.generation = 0
        self._closed: OrderedDict[int, RangeSum] = OrderedDict()
        # Complete ranges that are not reported to the leader yet, by start.
        self._pending: dict[int, RangeDigest] = {}
        self._reported_end = NO_OFFSET  # of the open range
        self._reports_again = False
        self._sums = RangeSums(range_offsets or 1, log_end)
        # Complete ranges below this offset were appended before the log was opened. The newest are
        # yet to be read: so many.
        self._unread_end = self._sums.open.start
        self._unread = MAX_READ_AGAIN if range_offsets else 0

    @property
    def is_on(self) -> bool:
        return self.range_offsets > 0

    def appended(self, batches: Sequence[Batch]) -> None:
        if not self.range_offsets:
            return
        for closed in self._sums.add([batch[0] for batch in batches]):
            self._close(closed)

    def _close(self, closed: RangeSum) -> None:
        self._closed[closed.start] = closed
        if len(self._closed) > MAX_KEPT_RANGES:
            self._closed.popitem(last=False)
        digest = closed.digest
        if digest is not None:
            self._report(digest)

    def _report(self, digest: RangeDigest) -> None:
        self._pending.pop(digest.start, None)
        self._pending[digest.start] = digest
        if len(self._pending) > MAX_PENDING_RANGES:
            del self._pending[next(iter(self._pending))]

    def cut(self, offset: int) -> None:
        """The log ends at this offset now, at the end of a batch."""
        self.generation += 1
        for start in [start for start, one in self._closed.items() if one.end > offset]:
            del self._closed[start]
        self._drop_pending(lambda digest: digest.end > offset)
        before = next(reversed(self._closed.values()), None)
        is_covered = before is not None and before.end == offset
        self._sums = RangeSums(self.range_offsets or 1, offset, is_covered=is_covered)
        self._unread_end = min(self._unread_end, self._sums.open.start)
        self._reported_end = NO_OFFSET

    def reset(self, offset: int) -> None:
        """The log is empty and begins at this offset."""
        self._closed.clear()
        self.cut(offset)
        self._pending.clear()
        self._unread = 0

    def forget(self, start: int, end: int) -> None:
        """Batches between the two offsets have changed: they were made unreadable or restored."""
        self.generation += 1
        for known in [k for k, one in self._closed.items() if one.start < end and one.end > start]:
            del self._closed[known]
        self._drop_pending(lambda digest: digest.start < end and digest.end > start)
        current = self._sums.open
        if current.end > start and current.start < end:
            current.covered_from, current.value = current.end, 0
            current.beyond_value = None

    def _drop_pending(self, is_stale: Callable[[RangeDigest], bool]) -> None:
        self._pending = {s: d for s, d in self._pending.items() if not is_stale(d)}

    def of(self, start: int, end: int) -> RangeDigest | None:
        """Returns None if it is not in memory."""
        known = self._known(start)
        return known.digest if known is not None and known.end == end else None

    def _known(self, start: int) -> RangeSum | None:
        current = self._sums.open
        return current if current.start == start else self._closed.get(start)

    def appended_in(self, start: int, end: int) -> RangeDigest | None:
        """Returns the digest of the batches as they were appended, whatever the disk holds since;
        None: not in memory."""
        known = self._known(start)
        if known is None or known.end != end or known.damaged or known.appended is None:
            return None
        return RangeDigest(start, end, known.appended)

    def is_open(self, start: int, end: int) -> bool:
        """Returns whether a range that begins at `start` has more batches here and is still
        growing.

        It is compared when both replicas are at the same offset, or when it is complete."""
        current = self._sums.open
        return current.start == start and end < current.end

    def to_read(self) -> tuple[int, int] | None:
        """Returns the first and the next offset of what memory lacks of the open range; None:
        nothing."""
        current = self._sums.open
        if not self.range_offsets or current.damaged or current.covered_from <= current.start:
            return None
        return current.start, current.covered_from

    def read(self, part: RangeDigest | None, start: int, end: int) -> None:
        """Adds the part that `to_read` returned, read from the disk; None: it is not to be
        compared."""
        current = self._sums.open
        known = self._known(start)
        if known is None or known.covered_from != end:
            return
        if part is None:
            known.covered_from, known.damaged = start, True
        else:
            known.count_instead(known.value + part.value, start)
        digest = known.digest
        if known is not current and digest is not None:
            self._report(digest)

    def to_read_again(self, log_start: int) -> tuple[int, int] | None:
        """Returns where the next of the newest ranges begins and the one behind it, to read and
        report it after a start; None: nothing is left."""
        start = self._unread_end - self.range_offsets
        if self._unread <= 0 or start < log_start:
            return None
        return start, self._unread_end

    def read_again(self, start: int, found: RangeDigest | None) -> None:
        """Reports the range that `to_read_again` returned, read from the disk; None: it is not to
        be compared."""
        if start + self.range_offsets != self._unread_end:
            return
        self._unread_end, self._unread = start, self._unread - 1
        if found is not None:
            self._report(found)

    def scrubbed(self, found: RangeDigest) -> RangeDigest | None:
        """Applies the digest of a range on disk, which counts from now on and is reported.

        Returns the digest as appended, or as known before, if it differs. A part of a range that
        has ended meanwhile is ignored."""
        start, end, value = found
        before = self.appended_in(start, end) or self.of(start, end)
        known, pending = self._known(start), self._pending.get(start)
        if known is not None and known.end == end:
            known.count_instead(value, start)
            known.damaged = False
        elif known is not None and known is not self._sums.open:
            return None
        elif known is not None:
            # It has grown since. All of it is read again.
            known.count_instead(0, known.end)
        if pending is None or pending.end <= end:
            self._report(found)
        return before if before is not None and before != found else None

    # Reports.

    def reports(self, committed: int, log_start: int, limit: int) -> list[RangeDigest]:
        """Returns ranges that are committed, completely in the log, and not reported yet.

        The open range is among them if it is committed to its end."""
        if self._reports_again and limit > 0:
            self._reports_again = False
            self._pend_newest()
        current = self._sums.open.digest
        self._drop_pending(
            lambda digest: (
                digest.start < log_start
                # The range has grown since the scrub read it.
                or (current is not None and _is_shorter(digest, current, committed))
            )
        )
        found = [digest for digest in self._pending.values() if digest.end <= committed][:limit]
        last = self._sums.open.digest if self._is_unreported(log_start) else None
        if last is not None and last.end <= committed and len(found) < limit:
            found.append(last)
        return found

    def report_again(self) -> None:
        """A new leader has no report yet. What does not fit is left to the scrub."""
        self._reports_again = True
        self._reported_end = NO_OFFSET

    def _pend_newest(self) -> None:
        newest = islice(reversed(self._closed.values()), MAX_PENDING_RANGES - len(self._pending))
        for digest in filter(None, [one.digest for one in newest]):
            self._pending.setdefault(digest.start, digest)

    def _is_unreported(self, log_start: int) -> bool:
        current = self._sums.open
        return (
            log_start <= current.start < current.end != self._reported_end
            and not current.damaged
            and current.start not in self._pending
        )

    def reported(self, digest: RangeDigest) -> None:
        """The leader has this digest."""
        if self._pending.get(digest.start) == digest:
            del self._pending[digest.start]
        if self._sums.open.digest == digest:
            self._reported_end = digest.end

    def has_reports(self, log_start: int) -> bool:
        """Returns whether there is something to report, now or once it is committed and known."""
        is_pending = bool(self._pending) or self._reports_again
        is_unread = self.to_read_again(log_start) is not None
        return self.is_on and (is_pending or is_unread or self._is_unreported(log_start))
