"""Sequences of the batches of one partition, for an idempotent producer. No I/O.

A batch gets its sequence when it is first sent ("Idempotent producers" in
docs/internals/producers.md). It keeps the sequence while it is *in doubt* (rule
`waiting-produce-ends-with-epoch`): it may be in the log, or may still be appended. A batch that was
never in doubt may be numbered again. So may a batch in doubt that follows, under one identity, a
sequence that no client will ever write: every leader rejects it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client.sealed_batch import SealedBatch

# After the last sequence comes 0.
SEQUENCES = 1 << 31
# Brokers remember this many of a producer's last batches. A duplicate of one of them is answered
# like the original, and waits until it is committed like the original.
MAX_UNSETTLED_BATCHES = 5


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int


class WriteOutcome(enum.Enum):
    """Outcome of a batch."""

    WRITTEN = enum.auto()
    # Rejected by every leader that received it, so no leader will append it.
    NOT_WRITTEN = enum.auto()
    UNKNOWN = enum.auto()


def sequence_after(sequence: int, records: int) -> int:
    """
    >>> sequence_after(2**31 - 2, 3)
    1
    """
    return (sequence + records) % SEQUENCES


@dataclass(slots=True)
class Numbering:
    """Sequences of one partition.

    - `unsettled`: batches with a sequence and no outcome, in order. From the first of them on, at
      most MAX_UNSETTLED_BATCHES get a sequence, including batches that have an outcome.
    - `next_sequence`: None: it must be queried, because a named producer continues after the
      previous holder of its name.
    """

    named: bool
    identity: Identity | None = None
    next_sequence: int | None = None
    unsettled: list[SealedBatch] = field(default_factory=list)
    # The identity that cannot continue in this partition.
    _rejected: Identity | None = None
    _identity_unusable: bool = False
    # Number of the first batch that left a sequence unused while other batches followed it.
    _gap: int | None = None
    # The sequence after the last batch that is known to be written, and that batch's number.
    _resume: int = 0
    _resume_number: int = -1

    def wants_identity(self, current: Identity | None) -> bool:
        """Returns whether new batches can only be numbered under an identity other than
        `current`."""
        return self.identity is None and (current is None or current == self._rejected)

    @property
    def wants_position(self) -> bool:
        return self.identity is not None and self.next_sequence is None

    def adopt(self, current: Identity | None) -> None:
        """Takes the identity if the partition has none and may have this one."""
        if self.identity is None and current is not None and current != self._rejected:
            self.identity = current
            self._rejected = None
            self.next_sequence = None if self.named else 0
            self._resume = 0

    def positioned(self, next_sequence: int) -> None:
        self.next_sequence = self._resume = next_sequence

    @property
    def may_number(self) -> bool:
        return (
            self.identity is not None
            and self.next_sequence is not None
            and not self._identity_unusable
            and self._gap is None
            and self.room > 0
        )

    @property
    def room(self) -> int:
        """Number of further batches that may get a sequence.

        While the first batch waits for its answer, later batches may be written, even at another
        leader. If these were more than brokers remember, a repetition of the first one would be
        answered like an old duplicate."""
        if not self.unsettled:
            return MAX_UNSETTLED_BATCHES
        newest = max(self.unsettled[-1].number, self._resume_number)
        return max(0, MAX_UNSETTLED_BATCHES - (newest - self.unsettled[0].number + 1))

    def number(self, batch: SealedBatch) -> None:
        """Numbers a batch; the caller has checked `may_number`."""
        assert self.identity is not None
        assert self.next_sequence is not None
        batch.batch = batch.encoded.to_batch(*self.identity, self.next_sequence)
        self.next_sequence = sequence_after(self.next_sequence, batch.encoded.record_count)
        self.unsettled.append(batch)

    def is_first(self, batch: SealedBatch) -> bool:
        return bool(self.unsettled) and self.unsettled[0] is batch

    def mark_identity_unusable(self) -> None:
        """Records that the leader does not know the sequences before these. The producer cannot
        continue under this identity (a named one: not from here)."""
        self._identity_unusable = True

    def settled(self, batch: SealedBatch, write_outcome: WriteOutcome) -> None:
        if batch.batch is None:
            return
        sequence = batch.batch.header.base_sequence
        was_last = self.unsettled[-1] is batch
        self.unsettled.remove(batch)
        if write_outcome is WriteOutcome.UNKNOWN:
            self._identity_unusable = True
        elif write_outcome is WriteOutcome.WRITTEN:
            if batch.number > self._resume_number:
                self._resume_number = batch.number
                self._resume = sequence_after(sequence, batch.encoded.record_count)
        elif was_last and self._gap is None:
            self.next_sequence = sequence
        elif self._gap is None or batch.number < self._gap:
            self._gap = batch.number

    def reclaim_sequences(self) -> None:
        """Takes back the sequences of batches that cannot be written under them. Called while
        nothing of the partition is in flight. Batches that may be written keep their sequences, and
        get an outcome before any batch gets a new sequence."""
        if not self._identity_unusable and self._gap is None:
            return
        cut = next(
            (index for index, batch in enumerate(self.unsettled) if self._is_cut(batch)),
            len(self.unsettled),
        )
        doubt = any(batch.in_doubt for batch in self.unsettled[cut:])
        if doubt and self.named:
            # Its sequences will be used again, and a leader could then append a late copy.
            return
        self._identity_unusable = self._identity_unusable or doubt
        for batch in self.unsettled[cut:]:
            batch.batch = None
            batch.in_doubt = False
        del self.unsettled[cut:]
        if not self._identity_unusable:
            self.next_sequence = self._next_after_unsettled()
            self._gap = None
        elif not self.unsettled:
            self._restart_numbering()

    def _is_cut(self, batch: SealedBatch) -> bool:
        follows_gap = self._gap is not None and batch.number > self._gap
        return follows_gap or (self._identity_unusable and not batch.in_doubt)

    def _next_after_unsettled(self) -> int:
        if not self.unsettled:
            return self._resume
        last = self.unsettled[-1]
        assert last.batch is not None, "what is unsettled has a sequence"
        return sequence_after(last.batch.header.base_sequence, last.encoded.record_count)

    def _restart_numbering(self) -> None:
        self._identity_unusable = False
        self._gap = None
        self.next_sequence = None
        if not self.named:
            self._rejected, self.identity = self.identity, None
