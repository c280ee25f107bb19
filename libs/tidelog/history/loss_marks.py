"""Losses of one partition that have a known reason."""

from __future__ import annotations

from tidelog.history.client_operations import OPEN_END, LossMark
from tidelog.model import NO_OFFSET


class LossMarks:
    def __init__(self) -> None:
        self._marks: list[LossMark] = []

    def __bool__(self) -> bool:
        return bool(self._marks)

    def add(self, mark: LossMark) -> None:
        self._marks.append(mark)

    def reason(self, leader_epoch: int, offset: int) -> str | None:
        """Returns why the record with this epoch and offset was given up, or None.

        Only a mark over all offsets covers an unknown offset (NO_OFFSET).
        """
        for mark in self._marks:
            if not mark.first_epoch <= leader_epoch <= mark.last_epoch:
                continue
            if offset == NO_OFFSET:
                covered = mark.first_offset == 0 and mark.end_offset == OPEN_END
            else:
                covered = mark.first_offset <= offset < mark.end_offset
            if covered:
                return mark.reason
        return None

    def ends_by(self, leader_epoch: int, offset: int, end: int) -> bool:
        """Whether a mark covers this epoch and offset and ends at `end` or before. The mark of an
        election has no end."""
        return any(
            mark.first_epoch <= leader_epoch <= mark.last_epoch
            and mark.first_offset <= offset < mark.end_offset <= end
            for mark in self._marks
        )

    def highest_kept(self, leader_epoch: int, lowest: int, highest: int) -> int | None:
        """Returns the highest offset from `lowest` to `highest` (included) at which a record of
        this epoch was not given up, or None."""
        kept = highest
        # Downwards, so that each mark applies at most once.
        for mark in sorted(self._marks, key=lambda mark: mark.end_offset, reverse=True):
            if (
                mark.first_epoch <= leader_epoch <= mark.last_epoch
                and mark.first_offset <= kept < mark.end_offset
            ):
                kept = mark.first_offset - 1
        return kept if kept >= lowest else None

    def are_of_one_log(self, offset: int, one_epoch: int, other_epoch: int) -> bool:
        """Whether records of both epochs from `offset` on were certainly in one log.

        They were if one leader wrote both, or if no loss gave up either. A loss that gave up both
        may lie between them: the leader after it may bring back what an earlier leader had not
        committed.
        """
        if one_epoch == other_epoch:
            return True
        return self.reason(one_epoch, offset) is None and self.reason(other_epoch, offset) is None
