"""The state of a partition's idempotent producers ("Idempotent producers" in
docs/internals/producers.md; KIP-98, KIP-360).

A producer numbers its records by partition. The sequence of a batch is that of its first record;
after MAX_SEQUENCE comes 0. The leader compares it with the last sequence in the log. The next one
is appended, a duplicate gets its first answer again, and all else is rejected. Followers and
restarts apply what is in the log without a check, so that every replica knows what its leader did.

A named producer has had several holders, each with a newer epoch. Its sequences continue from one
holder to the next, so that what one holder wrote is a duplicate for all."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from tidelog.batch import NO_SEQUENCE, is_fence
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID, NO_PRODUCER_ID, BatchHeader

# The maximum of batches that a producer may have in flight to a partition.
REMEMBERED_BATCHES = 5
MAX_SEQUENCE = 2**31 - 1
_SEQUENCES = MAX_SEQUENCE + 1
# Longer than a client tries to deliver a batch. A producer that wrote within it may send its first
# batch again, which would be appended twice if its state were forgotten.
LONGEST_DELIVERY_MS = 10 * 60_000
# Above MAX_UNNAMED_PRODUCERS the unnamed producers that have been silent longest are forgotten,
# unless they wrote within LONGEST_DELIVERY_MS. Above MAX_RECENT_UNNAMED_PRODUCERS (about 100 MB)
# those are forgotten, too.
MAX_UNNAMED_PRODUCERS = 20_000
MAX_RECENT_UNNAMED_PRODUCERS = 100_000
# For each new producer. It is more than one, so that their number falls again.
MAX_FORGOTTEN_AT_ONCE = 2


class RememberedBatch(NamedTuple):
    base_sequence: int
    record_count: int
    base_offset: int
    leader_epoch: int
    append_time_ms: int
    producer_epoch: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.record_count

    @property
    def last_sequence(self) -> int:
        return _plus(self.base_sequence, self.record_count - 1)


class ProducerEntry(NamedTuple):
    """The progress of one producer.

    - `producer_epoch`: the newest epoch in which it wrote or fenced.
    - `last_sequence`: that of `batches`; NO_SEQUENCE if there is nothing but a fence.
    - `end_offset`: the offset after its last batch or fence.
    - `epoch_start_sequence`: the first sequence of `producer_epoch`; NO_SEQUENCE: unknown.
    - `batches`: the last ones, oldest first; all of this epoch unless the producer has a name.
    """

    producer_epoch: int
    last_sequence: int
    end_offset: int
    last_append_time_ms: int
    epoch_start_sequence: int
    batches: tuple[RememberedBatch, ...]


class Duplicate(NamedTuple):
    """Sequences that are in the log already.

    - `original`: None if their batch is no longer remembered, or is of another holder of the
      producer's name.
    - `next_offset`: all are committed once the high watermark has reached it.
    """

    original: RememberedBatch | None
    next_offset: int


class CrowdedOut(NamedTuple):
    """How many unnamed producers were evicted because there were too many, before the configured
    expiration.

    - `recent`: within LONGEST_DELIVERY_MS of their last batch. Their first batch may be sent again,
      and is appended twice then.
    """

    recent: int = 0
    older: int = 0

    def and_(self, others: CrowdedOut) -> CrowdedOut:
        return CrowdedOut(self.recent + others.recent, self.older + others.older)


NOBODY = CrowdedOut()


class CommittedProducer(NamedTuple):
    """The committed progress of a producer.

    `last_sequence` is that of its last committed record, or NO_SEQUENCE; `epoch_start_sequence` is
    as in `ProducerEntry`."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_append_time_ms: int
    epoch_start_sequence: int


def is_named(producer_id: int) -> bool:
    return producer_id >= FIRST_NAMED_PRODUCER_ID


def _plus(sequence: int, count: int) -> int:
    return (sequence + count) % _SEQUENCES


def _after(producer_id: int, entry: ProducerEntry | None, header: BatchHeader) -> ProducerEntry:
    """Returns the entry with the batch in the log."""
    if is_fence(header):
        last, batches = (entry.last_sequence, entry.batches) if entry else (NO_SEQUENCE, ())
    else:
        batch = RememberedBatch(
            header.base_sequence,
            header.record_count,
            header.base_offset,
            header.leader_epoch,
            header.append_time_ms,
            header.producer_epoch,
        )
        before: tuple[RememberedBatch, ...] = ()
        if entry and (is_named(producer_id) or entry.producer_epoch == header.producer_epoch):
            before = entry.batches[1 - REMEMBERED_BATCHES :]
        last, batches = batch.last_sequence, (*before, batch)
    return ProducerEntry(
        header.producer_epoch,
        last,
        header.next_offset,
        header.append_time_ms,
        _epoch_start(entry, header),
        batches,
    )


def _epoch_start(entry: ProducerEntry | None, header: BatchHeader) -> int:
    if entry is not None and entry.producer_epoch == header.producer_epoch:
        return entry.epoch_start_sequence
    if not is_fence(header):
        return header.base_sequence
    # After a fence comes the next sequence, or 0 if there is none yet.
    last = NO_SEQUENCE if entry is None else entry.last_sequence
    return 0 if last == NO_SEQUENCE else _plus(last, 1)


def _check(entry: ProducerEntry | None, header: BatchHeader) -> Duplicate | None:
    """Returns None if the batch comes next. Raises as `ProducerStates.check` does."""
    producer, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
    if entry is None:
        if sequence == 0:
            return None
        raise TidelogError(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"producer {producer} is unknown here, and its batch has sequence {sequence}; "
            "begin at 0, with a new producer id unless this one is new",
        )
    if epoch < entry.producer_epoch:
        raise fenced(producer, epoch, entry.producer_epoch)
    expected = _plus(entry.last_sequence, 1)
    if epoch > entry.producer_epoch and not is_named(producer):
        if sequence == 0:
            return None
        raise _out_of_order(header, f"epoch {epoch} is new and begins at 0")
    if sequence == expected:
        return None
    behind = (expected - sequence) % _SEQUENCES
    # A producer that never wrote has no earlier sequences.
    if entry.last_sequence == NO_SEQUENCE or behind > _SEQUENCES // 2:
        raise _out_of_order(header, f"{expected} comes next")
    if behind < header.record_count:
        raise TidelogError(
            ErrorCode.INVALID_BATCH,
            f"the batch of producer {producer} has the {header.record_count} sequences from "
            f"{sequence} on, of which those up to {entry.last_sequence} are in the log; "
            f"begin at {expected}",
        )
    for batch in entry.batches:
        if (batch.base_sequence, batch.record_count) == (sequence, header.record_count):
            # Another holder of the name may have written something else.
            original = batch if batch.producer_epoch == epoch else None
            return Duplicate(original, batch.next_offset)
    return Duplicate(None, _end_of_forgotten(entry, header))


def _end_of_forgotten(entry: ProducerEntry, header: BatchHeader) -> int:
    """Returns an offset below which all of a batch lies that is not remembered: it is older than
    the remembered ones, or was split differently when it was first sent."""
    if entry.batches:
        oldest = entry.batches[0]
        older = (oldest.base_sequence - header.base_sequence) % _SEQUENCES
        if header.record_count <= older <= _SEQUENCES // 2:
            return oldest.base_offset
    return entry.end_offset


def _require_sound(header: BatchHeader) -> None:
    if header.producer_id < 1 or header.producer_epoch < 0 or header.base_sequence < 0:
        raise TidelogError(
            ErrorCode.INVALID_BATCH,
            f"producer_id is {header.producer_id}, producer_epoch {header.producer_epoch} and "
            f"base_sequence {header.base_sequence}; set the first two as InitProducerId gave "
            "them and count sequences from 0, or set all three to -1",
        )


def _out_of_order(header: BatchHeader, expected: str) -> TidelogError:
    return TidelogError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        f"the batch of producer {header.producer_id} has sequence {header.base_sequence}, and "
        f"{expected}; send it again after the batches before it",
    )


def fenced(
    producer_id: int, producer_epoch: int, newest_epoch: int, name: str = ""
) -> TidelogError:
    """`name` is the producer's; empty: it is unknown, or there is none."""
    named = f"{name!r} (id {producer_id})" if name else str(producer_id)
    return TidelogError(
        ErrorCode.FENCED_PRODUCER_EPOCH,
        f"producer {named} is in epoch {newest_epoch} now; epoch {producer_epoch} is fenced",
    )


def _committed_sequence(entry: ProducerEntry, high_watermark: int) -> int | None:
    """Returns None if it is unknown."""
    if entry.end_offset <= high_watermark:
        return entry.last_sequence
    for batch in reversed(entry.batches):
        if batch.next_offset <= high_watermark:
            return batch.last_sequence
    if not entry.batches:
        return NO_SEQUENCE
    first = entry.batches[0]
    if len(entry.batches) < REMEMBERED_BATCHES and first.base_sequence == 0:
        return NO_SEQUENCE
    return None


class RunningStates:
    """The states after some batches of a request. They count only once all batches are appended."""

    def __init__(self, known: Mapping[int, ProducerEntry]) -> None:
        self._known = known
        self._changed: dict[int, ProducerEntry] = {}

    def check(self, header: BatchHeader) -> Duplicate | None:
        """Implements `ProducerStates.check`."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return None
        _require_sound(header)
        return _check(self._entry(producer_id), header)

    def note(self, header: BatchHeader) -> None:
        """Applies a stamped batch."""
        producer_id = header.producer_id
        if producer_id != NO_PRODUCER_ID:
            self._changed[producer_id] = _after(producer_id, self._entry(producer_id), header)

    def _entry(self, producer_id: int) -> ProducerEntry | None:
        return self._changed.get(producer_id) or self._known.get(producer_id)


class ProducerStates:
    """The states of the producers of one partition.

    Invariant: they equal what applying every batch of the log in order gives, from the first one
    ever written on, less what has expired."""

    def __init__(self, entries: Iterable[tuple[int, ProducerEntry]] = ()) -> None:
        # Ordered by last batch, the oldest first.
        self._entries = dict(entries)
        self._unnamed = sum(1 for producer_id in self._entries if not is_named(producer_id))
        # When expired producers were first found, on a clock that does not jump.
        self._expired_at: dict[int, int] = {}
        # By batches that were applied here, whether appended now or read from the log.
        self.crowded_out = NOBODY

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    @property
    def entries(self) -> tuple[tuple[int, ProducerEntry], ...]:
        return tuple(self._entries.items())

    def check(self, header: BatchHeader) -> Duplicate | None:
        """Returns None if a leader has to append the batch.

        Raises INVALID_BATCH for an impossible id, epoch or sequence, and for a batch of which a
        part is in the log; UNKNOWN_PRODUCER_ID, FENCED_PRODUCER_EPOCH and OUT_OF_ORDER_SEQUENCE.

        Sequences wrap around: one up to 2^30 behind the next counts as written before, any other as
        ahead. So a batch that is repeated after more than 2^30 others is out of order and not a
        duplicate. Producers do not retry that long, and nothing is written twice."""
        return self.running().check(header)

    def running(self) -> RunningStates:
        """Returns states for a request of several batches. Do not use them after the next
        `note`."""
        return RunningStates(self._entries)

    def note(self, header: BatchHeader) -> None:
        """Applies a batch of the log, without a check: a leader's log is right."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return
        before = self._entries.pop(producer_id, None)
        self._entries[producer_id] = _after(producer_id, before, header)
        self._expired_at.pop(producer_id, None)
        if before is None and not is_named(producer_id):
            self._unnamed += 1
            if self._unnamed > MAX_UNNAMED_PRODUCERS:
                self._forget_silent(header.append_time_ms)

    def needs_fence(self, producer_id: int, producer_epoch: int) -> bool:
        """Returns whether an older epoch could still write.

        Raises FENCED_PRODUCER_EPOCH if `producer_epoch` itself is older."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return producer_epoch > 0
        if producer_epoch < entry.producer_epoch:
            raise fenced(producer_id, producer_epoch, entry.producer_epoch)
        return producer_epoch > entry.producer_epoch

    @property
    def ids(self) -> list[int]:
        """Ids of all known producers, in order."""
        return sorted(self._entries)

    def committed(
        self,
        producer_ids: Collection[int],
        high_watermark: int,
        *,
        leaves_out_unknown: bool = False,
    ) -> list[CommittedProducer]:
        """Returns the committed progress of producers, ordered by id.

        If all remembered batches of a producer are above the high watermark, it is unknown whether
        those before are committed. Then a requested id raises OFFSET_NOT_AVAILABLE. Without ids, or
        with `leaves_out_unknown`, the producer is left out."""
        wanted = producer_ids or self._entries
        leaves_out_unknown = leaves_out_unknown or not producer_ids
        found = []
        for producer_id in sorted(set(wanted)):
            entry = self._entries.get(producer_id)
            if entry is None:
                continue
            sequence = _committed_sequence(entry, high_watermark)
            if sequence is None and leaves_out_unknown:
                continue
            if sequence is None:
                raise TidelogError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"the last {len(entry.batches)} batches of producer {producer_id} are not "
                    f"committed yet (high watermark {high_watermark}), and earlier ones are "
                    "unknown; try again",
                )
            found.append(
                CommittedProducer(
                    producer_id,
                    entry.producer_epoch,
                    sequence,
                    entry.last_append_time_ms,
                    entry.epoch_start_sequence,
                )
            )
        return found

    def expire(
        self, now_ms: int, expiration_ms: int, *, monotonic_ms: int, named: Container[int]
    ) -> int:
        """Forgets producers that have not written for `expiration_ms`, and returns how many.

        None is forgotten before LONGEST_DELIVERY_MS have passed since it was first found expired:
        the wall clock may have jumped since it wrote. `named` are producers whose name exists. They
        are kept, because a holder of the name may return at any time."""
        silent = [
            producer_id
            for producer_id, entry in self._entries.items()
            if producer_id not in named and now_ms - entry.last_append_time_ms > expiration_ms
        ]
        # A producer that is no longer expired is removed: the clock was corrected.
        since = self._expired_at
        self._expired_at = {p: since.get(p, monotonic_ms) for p in silent}
        gone = [p for p in silent if monotonic_ms - self._expired_at[p] >= LONGEST_DELIVERY_MS]
        for producer_id in gone:
            self._forget(producer_id)
        return len(gone)

    def _forget_silent(self, now_ms: int) -> None:
        """Uses the time of the new batch, so that all replicas forget the same producers."""
        unnamed = (p for p in self._entries if not is_named(p))
        for producer_id in list(islice(unnamed, MAX_FORGOTTEN_AT_ONCE)):
            silent_ms = now_ms - self._entries[producer_id].last_append_time_ms
            recent = silent_ms <= LONGEST_DELIVERY_MS
            most = MAX_RECENT_UNNAMED_PRODUCERS if recent else MAX_UNNAMED_PRODUCERS
            if self._unnamed <= most:
                return
            self._forget(producer_id)
            one = CrowdedOut(recent=1) if recent else CrowdedOut(older=1)
            self.crowded_out = self.crowded_out.and_(one)

    def _forget(self, producer_id: int) -> None:
        del self._entries[producer_id]
        self._expired_at.pop(producer_id, None)
        self._unnamed -= not is_named(producer_id)

    def to_value(self) -> dict[str, Any]:
        """Returns a JSON value. The starts of epochs are in a separate field, so that an older
        release ignores them and still finds its producers."""
        return {
            "producers": [
                [
                    producer_id,
                    entry.producer_epoch,
                    entry.last_sequence,
                    entry.end_offset,
                    entry.last_append_time_ms,
                    [list(batch) for batch in entry.batches],
                ]
                for producer_id, entry in self._entries.items()
            ],
            "epoch_starts": [
                [producer_id, entry.epoch_start_sequence]
                for producer_id, entry in self._entries.items()
                if entry.epoch_start_sequence != NO_SEQUENCE
            ],
        }

    @classmethod
    def of_value(cls, value: Mapping[str, Any]) -> ProducerStates:
        """Reads what `to_value` of this release, or of one without starts of epochs, has
        returned."""
        starts = dict(value.get("epoch_starts", ()))
        return cls(
            (
                producer_id,
                ProducerEntry(
                    epoch, last, end, time, starts.get(producer_id, NO_SEQUENCE), _batches(batches)
                ),
            )
            for producer_id, epoch, last, end, time, batches in value["producers"]
        )


def _batches(value: Iterable[Any]) -> tuple[RememberedBatch, ...]:
    return tuple(RememberedBatch(*batch) for batch in value)
