"""What a leader appends for a request, and what it answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from tidelog.batch import new_fence, stamp
from tidelog.model import NO_EPOCH, NO_OFFSET, Batch
from tidelog_broker.core.partition.exchange import Appended
from tidelog_broker.core.partition.producer_state import Duplicate, ProducerStates

NO_TIME = -1


class LogEnd(NamedTuple):
    """The next offset of a leader's log, its epoch, and the time."""

    offset: int
    leader_epoch: int
    now_ms: int

    def stamp(self, batch: Batch) -> Batch:
        return stamp(
            batch,
            base_offset=self.offset,
            leader_epoch=self.leader_epoch,
            append_time_ms=self.now_ms,
        )

    def after(self, batch: Batch) -> LogEnd:
        return self._replace(offset=self.offset + batch.header.record_count)


class Prepared(NamedTuple):
    """`answer` is right once `stamped`, which may be empty, is in the log."""

    stamped: list[Batch]
    answer: Appended


def prepare(states: ProducerStates, batches: Sequence[Batch], end: LogEnd) -> Prepared:
    """Stamps the batches that are not in the log yet.

    Raises as `ProducerStates.check` does, for the first batch that cannot be appended; then none
    is."""
    running = states.running()
    stamped: list[Batch] = []
    duplicates: list[Duplicate] = []
    first = end.offset
    for batch in batches:
        duplicate = running.check(batch.header)
        if duplicate is not None:
            duplicates.append(duplicate)
            continue
        stamped.append(end.stamp(batch))
        if len(batches) > 1:
            running.note(stamped[-1].header)
        end = end.after(batch)
    if not duplicates:
        return Prepared(stamped, Appended(first, end.offset, end.leader_epoch, end.now_ms))
    committed_at = max(duplicate.next_offset for duplicate in duplicates)
    if stamped:
        return Prepared(stamped, _somewhere(max(committed_at, end.offset)))
    return Prepared([], _as_before(duplicates) or _somewhere(committed_at))


def prepare_fence(
    states: ProducerStates, producer_id: int, producer_epoch: int, end: LogEnd
) -> Batch | None:
    """Returns None if no older epoch can write. Raises FENCED_PRODUCER_EPOCH."""
    if not states.needs_fence(producer_id, producer_epoch):
        return None
    return end.stamp(new_fence(producer_id, producer_epoch, end.now_ms))


def _as_before(duplicates: Sequence[Duplicate]) -> Appended | None:
    """Returns the first answer of the duplicates, which has one offset for all of them.

    Returns None if they are not contiguous, or if their offsets are not remembered."""
    originals = [duplicate.original for duplicate in duplicates if duplicate.original]
    if len(originals) < len(duplicates):
        return None
    if any(one.next_offset != other.base_offset for one, other in pairwise(originals)):
        return None
    first = originals[0]
    return Appended(
        first.base_offset, originals[-1].next_offset, first.leader_epoch, first.append_time_ms
    )


def _somewhere(next_offset: int) -> Appended:
    return Appended(NO_OFFSET, next_offset, NO_EPOCH, NO_TIME)
