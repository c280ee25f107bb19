"""What a start does about writes that were not synced before the last stop."""

from __future__ import annotations

import enum


class Unsynced(enum.Enum):
    """What became of the writes that were not synced before the last stop.

    After a power failure any page of them may be missing, whatever is behind it. A gap in them
    that has sound batches behind it was acknowledged data. Where other replicas have the records,
    the log has to end at the gap, so that they are copied again: an unreadable batch would count
    as held. Where none has them, the gap alone becomes unreadable."""

    # The machine continued. A complete frame that is wrong at the end is damage and no torn tail.
    # They are written again: the previous process may have ended right after an fsync that failed,
    # and the kernel takes for written what it could not write (interleaving 9). Where the first
    # segment is missing, `UndecidedDamageError` is raised, and nothing is changed.
    KEPT = "kept"
    # The same. Without its first segment the log is empty.
    KEPT_CUT = "kept_cut"
    # The same, in the only copy. The segment that is missing becomes unreadable.
    KEPT_SEALED = "kept_sealed"
    # This process has written them again.
    REWRITTEN = "rewritten"
    # Any may be missing. Damage raises `UndecidedDamageError`, and nothing is changed.
    LOST = "lost"
    # The same. The log ends at the first of them that is missing.
    LOST_CUT = "lost_cut"
    # The same, in the only copy. What is missing becomes unreadable, and what is behind it stays.
    LOST_SEALED = "lost_sealed"

    @property
    def is_kept(self) -> bool:
        return self in (Unsynced.KEPT, Unsynced.KEPT_CUT, Unsynced.KEPT_SEALED)

    @property
    def may_lack_end(self) -> bool:
        """Whether offsets at the log's end become unreadable that were acknowledged, and whose
        records are gone: where others have these, they are copied again behind the end."""
        return self not in (Unsynced.REWRITTEN, Unsynced.LOST_CUT)

    def decided(self, *, is_only_copy: bool) -> Unsynced:
        """In place of one that has left damage undecided."""
        if self.is_kept:
            return Unsynced.KEPT_SEALED if is_only_copy else Unsynced.KEPT_CUT
        return Unsynced.LOST_SEALED if is_only_copy else Unsynced.LOST_CUT
