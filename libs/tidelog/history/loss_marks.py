"""Loss that has a known reason, in one partition."""

from __future__ import annotations

from tidelog.history.operations import OPEN_END, LossMark
from tidelog.model import NO_OFFSET


class LossMarks:
    def __init__(self) -> None:
        self._marks: list[LossMark] = []

    def __bool__(self) -> bool:
        return bool(self._marks)

    def add(self, mark: LossMark) -> None:
        self._marks.append(mark)

    def reason(self, leader_epoch: int, offset: int) -> str | None:
        """Why what is stamped so was given up; None: it was not. An offset that is not
        known is covered only by a mark over all offsets."""
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
        """Whether a loss of what is stamped so reaches to `end` at most; that of an election has no
        end."""
        return any(
            mark.first_epoch <= leader_epoch <= mark.last_epoch
            and mark.first_offset <= offset < mark.end_offset <= end
            for mark in self._marks
        )

    def highest_kept(self, leader_epoch: int, lowest: int, highest: int) -> int | None:
        """Of the offsets `lowest` to `highest` (included), the highest at which what is
        stamped so was not given up."""
        kept = highest
        # Downwards, so that each mark is met once at most.
        for mark in sorted(self._marks, key=lambda mark: mark.end_offset, reverse=True):
            if (
                mark.first_epoch <= leader_epoch <= mark.last_epoch
                and mark.first_offset <= kept < mark.end_offset
            ):
                kept = mark.first_offset - 1
        return kept if kept >= lowest else None

    def are_of_one_log(self, offset: int, one_epoch: int, other_epoch: int) -> bool:
        """Whether what is stamped with either epoch from `offset` on was surely in one log: one
        leader wrote both, or no loss gave up either. One that gave up both may have come between
        them, for who leads after it may bring back what an earlier leader had not committed."""
        if one_epoch == other_epoch:
            return True
        return self.reason(one_epoch, offset) is None and self.reason(other_epoch, offset) is None
