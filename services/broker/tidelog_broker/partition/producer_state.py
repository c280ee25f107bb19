"""What a partition knows of its idempotent producers (section 3 of docs/internals/protocol.md;
KIP-98, KIP-360).

A producer numbers its records by partition: the sequence of a batch is that of its first
record, and after MAX_SEQUENCE comes 0 again. Whoever leads compares it with the last one
that is in the log: what follows is appended, what had been appended is answered like the
first time, all else is refused. A follower and a restart take note of what is in the log
and check nothing, so that every replica knows what its leader did.

A producer with a name has had several holders, each with a newer epoch. Its sequences go
on from one to the next, so that what one holder wrote is a duplicate for all.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from tidelog.batch import NO_SEQUENCE, is_fence
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID, NO_PRODUCER_ID, BatchHeader

# As many as a producer may have under way to a partition.
REMEMBERED_BATCHES = 5
MAX_SEQUENCE = 2**31 - 1
_SEQUENCES = MAX_SEQUENCE + 1
# Longer than a client tries to deliver a batch. Whoever wrote within it may send its first
# batch again, which would be appended twice if nothing were known of it.
LONGEST_DELIVERY_MS = 10 * 60_000
# Beyond so many the ones without a name that have been silent longest are forgotten, unless
# they wrote within LONGEST_DELIVERY_MS; beyond so many at most (about 100 MB), those too.
MAX_UNNAMED_PRODUCERS = 20_000
MAX_RECENT_UNNAMED_PRODUCERS = 100_000
# For each that is new: more than one, so that they become fewer again.
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
    """How far one producer has come.

    `producer_epoch` is the newest in which it wrote or fenced, `end_offset` the offset
    after its last batch or fence. `batches` are its last ones, oldest first, all of this
    epoch unless the producer has a name; `last_sequence` is theirs, or NO_SEQUENCE where
    there is nothing but a fence. `epoch_start_sequence` is that with which `producer_epoch`
    began, or NO_SEQUENCE where it is not known."""

    producer_epoch: int
    last_sequence: int
    end_offset: int
    last_append_time_ms: int
    epoch_start_sequence: int
    batches: tuple[RememberedBatch, ...]


class Duplicate(NamedTuple):
    """Sequences that are in the log. `original` is None where their batch is no longer
    remembered, or is of another holder of the producer's name.
    All of it is committed once the high watermark has reached `next_offset`."""

    original: RememberedBatch | None
    next_offset: int


class CrowdedOut(NamedTuple):
    """How many producers without a name were forgotten for want of room, before they had been
    silent for as long as is configured. `recent`: within LONGEST_DELIVERY_MS of their last
    batch; the first batch of such a one may come again, and is appended twice then."""

    recent: int = 0
    older: int = 0

    def and_(self, others: CrowdedOut) -> CrowdedOut:
        return CrowdedOut(self.recent + others.recent, self.older + others.older)


NOBODY = CrowdedOut()


class CommittedProducer(NamedTuple):
    """`last_sequence` is that of its last committed record, or NO_SEQUENCE;
    `epoch_start_sequence` as in `ProducerEntry`."""

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
    """Once the batch is in the log."""
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
    # What follows a fence is the next sequence, or the first of all.
    last = NO_SEQUENCE if entry is None else entry.last_sequence
    return 0 if last == NO_SEQUENCE else _plus(last, 1)


def _check(entry: ProducerEntry | None, header: BatchHeader) -> Duplicate | None:
    """None: the batch follows. Raises as `ProducerStates.check` says."""
    producer, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
    if entry is None:
        if sequence == 0:
            return None
        raise TidelogError(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"nothing is known of producer {producer}, whose batch has sequence {sequence}; "
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
    # Nothing lies behind a producer that never wrote.
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
            # What another holder of the name wrote may be something else.
            original = batch if batch.producer_epoch == epoch else None
            return Duplicate(original, batch.next_offset)
    return Duplicate(None, _end_of_forgotten(entry, header))


def _end_of_forgotten(entry: ProducerEntry, header: BatchHeader) -> int:
    """An offset below which all of a batch lies that is no remembered one: it is older
    than those, or it was cut differently when it was first sent."""
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
    """`name`: of the producer; empty: not known, or it has none."""
    named = f"{name!r} (id {producer_id})" if name else str(producer_id)
    return TidelogError(
        ErrorCode.FENCED_PRODUCER_EPOCH,
        f"producer {named} is in epoch {newest_epoch} by now; epoch "
        f"{producer_epoch} may write no more",
    )


def _committed_sequence(entry: ProducerEntry, high_watermark: int) -> int | None:
    """None: it cannot be told."""
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
    """The states as they would be after some batches of a request, none of which counts
    before all have been appended."""

    def __init__(self, known: Mapping[int, ProducerEntry]) -> None:
        self._known = known
        self._changed: dict[int, ProducerEntry] = {}

    def check(self, header: BatchHeader) -> Duplicate | None:
        """As `ProducerStates.check`."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return None
        _require_sound(header)
        return _check(self._entry(producer_id), header)

    def note(self, header: BatchHeader) -> None:
        """The batch as it is stamped."""
        producer_id = header.producer_id
        if producer_id != NO_PRODUCER_ID:
            self._changed[producer_id] = _after(producer_id, self._entry(producer_id), header)

    def _entry(self, producer_id: int) -> ProducerEntry | None:
        return self._changed.get(producer_id) or self._known.get(producer_id)


class ProducerStates:
    """Those of one partition. Invariant: they are what noting every batch of the log in
    order gives, from the first one ever written on, less what has expired."""

    def __init__(self, entries: Iterable[tuple[int, ProducerEntry]] = ()) -> None:
        # Ordered by last batch, the oldest first.
        self._entries = dict(entries)
        self._unnamed = sum(1 for producer_id in self._entries if not is_named(producer_id))
        # When those were first found to have been silent for too long, on a clock that does
        # not jump.
        self._expired_at: dict[int, int] = {}
        # By what was noted here, be it appended now or read from the log anew.
        self.crowded_out = NOBODY

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    @property
    def entries(self) -> tuple[tuple[int, ProducerEntry], ...]:
        return tuple(self._entries.items())

    def check(self, header: BatchHeader) -> Duplicate | None:
        """What a leader does with a batch: None says append it.

        Raises INVALID_BATCH for an id, epoch or sequence that cannot be, and for a batch
        of which a part is in the log; UNKNOWN_PRODUCER_ID, FENCED_PRODUCER_EPOCH and
        OUT_OF_ORDER_SEQUENCE.

        Sequences go round: one up to 2^30 behind the next counts as written before, any
        other as ahead of it. So a batch that is repeated after more than 2^30 others is out
        of order and not a duplicate; who repeats it has waited far longer than any producer
        does, and nothing is written twice."""
        return self.running().check(header)

    def running(self) -> RunningStates:
        """For a request of several batches; to be used up before anything is noted here."""
        return RunningStates(self._entries)

    def note(self, header: BatchHeader) -> None:
        """The batch is in the log. Without a check: a leader's log is right."""
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
        """Whether an older epoch could still write. Raises FENCED_PRODUCER_EPOCH for one
        that is older itself."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return producer_epoch > 0
        if producer_epoch < entry.producer_epoch:
            raise fenced(producer_id, producer_epoch, entry.producer_epoch)
        return producer_epoch > entry.producer_epoch

    @property
    def ids(self) -> list[int]:
        """Of all producers that are known here, in order."""
        return sorted(self._entries)

    def committed(
        self,
        producer_ids: Collection[int],
        high_watermark: int,
        *,
        leaves_out_unknown: bool = False,
    ) -> list[CommittedProducer]:
        """Ordered by id. Where all batches of a producer that are remembered lie above the
        high watermark, those before may or may not: raises OFFSET_NOT_AVAILABLE if it is
        asked for. Without ids, and where the caller says so, it is left out."""
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
                    f"committed yet (high watermark {high_watermark}), and the ones before are "
                    "not remembered; ask again",
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
        """Forgets who has written nothing for so long, and returns how many. Nobody goes
        before LONGEST_DELIVERY_MS have passed since that was first found: the wall clock,
        by which it is found, may have jumped since they wrote. `named`: producers whose name is
        there. They are kept: a holder of the name may come back at any time."""
        silent = [
            producer_id
            for producer_id, entry in self._entries.items()
            if producer_id not in named and now_ms - entry.last_append_time_ms > expiration_ms
        ]
        # Whoever is not found so any more begins anew: the clock has been put right.
        since = self._expired_at
        self._expired_at = {p: since.get(p, monotonic_ms) for p in silent}
        gone = [p for p in silent if monotonic_ms - self._expired_at[p] >= LONGEST_DELIVERY_MS]
        for producer_id in gone:
            self._forget(producer_id)
        return len(gone)

    def _forget_silent(self, now_ms: int) -> None:
        """By the time of the batch that is new, so that all replicas forget the same."""
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
        """As JSON takes it. Where epochs began stands beside what a release reads that does not
        know of it, so that who goes back to one finds its producers."""
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
        """What `to_value` made, here or in a release that knew no starts of epochs."""
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
