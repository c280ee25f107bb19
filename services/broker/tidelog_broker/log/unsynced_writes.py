"""How a start treats writes that were not synced before the last stop."""

from __future__ import annotations

import enum


class UnsyncedWrites(enum.Enum):
    """What became of the writes that were not synced before the last stop.

    After a power failure any page of them may be missing, even if later pages are there. A gap with
    valid batches behind it was acknowledged data. If other replicas have the records, the log has
    to end at the gap, so that they are copied again: an unreadable batch would count as replicated.
    If no replica has them, only the gap becomes unreadable."""

    # The machine kept running. A complete but invalid frame at the end is damage and no torn tail.
    # The writes are repeated: the previous process may have ended right after a failed fsync, and
    # the kernel regards as written what it could not write (rule `damaged-replica-resigns-first`).
    # If the first segment is missing, or the segments do not continue each other,
    # `UndecidedDamageError` is raised and nothing valid is removed.
    KEPT = "kept"
    # Like KEPT, but the log ends there; without its first segment it is empty.
    KEPT_CUT = "kept_cut"
    # Like KEPT, in the only copy. What is missing becomes unreadable, and misplaced batches are put
    # in order.
    KEPT_ONLY_COPY = "kept_sealed"
    # This process has written them again.
    REWRITTEN = "rewritten"
    # Like REWRITTEN, in the only copy.
    REWRITTEN_ONLY_COPY = "rewritten_sealed"
    # Any page may be missing. Damage raises `UndecidedDamageError`, and nothing is changed.
    LOST = "lost"
    # Like LOST, but the log ends at the first missing write.
    LOST_CUT = "lost_cut"
    # Like LOST, in the only copy. Missing writes become unreadable, and what is behind them stays.
    LOST_ONLY_COPY = "lost_sealed"

    @property
    def is_kept(self) -> bool:
        return self in (UnsyncedWrites.KEPT, UnsyncedWrites.KEPT_CUT, UnsyncedWrites.KEPT_ONLY_COPY)

    @property
    def is_only_copy(self) -> bool:
        """Whether no other replica has the records, so that nothing valid may be removed."""
        return self in (
            UnsyncedWrites.KEPT_ONLY_COPY,
            UnsyncedWrites.LOST_ONLY_COPY,
            UnsyncedWrites.REWRITTEN_ONLY_COPY,
        )

    @property
    def is_undecided(self) -> bool:
        """Whether damage raises `UndecidedDamageError` if its repair depends on other replicas."""
        return self in (UnsyncedWrites.KEPT, UnsyncedWrites.LOST)

    @property
    def may_lack_end(self) -> bool:
        """Whether acknowledged offsets at the log's end become unreadable if their records are
        gone.

        Otherwise the log ends before them, and they are copied again from other replicas."""
        return self not in (UnsyncedWrites.REWRITTEN, UnsyncedWrites.LOST_CUT)

    def decided(self, *, is_only_copy: bool) -> UnsyncedWrites:
        """Returns the value to use after this one has left damage undecided."""
        if self.is_kept:
            return UnsyncedWrites.KEPT_ONLY_COPY if is_only_copy else UnsyncedWrites.KEPT_CUT
        return UnsyncedWrites.LOST_ONLY_COPY if is_only_copy else UnsyncedWrites.LOST_CUT
