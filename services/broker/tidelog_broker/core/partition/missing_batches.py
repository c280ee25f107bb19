"""Unreadable batches of a follower's log that it copies from its leader in place ("Damaged batches"
in docs/internals/log-format.md).

The follower fetches the first such range as though its log ended there, so that the leader does not
count what is behind it. Then it fetches the next one. The batches behind a range stay: the leader
may be unable to read them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence

from tidelog.batch import is_damaged
from tidelog.model import NO_EPOCH, Batch
from tidelog_broker.core.partition.replica_log import ReplicaLog

# After so many answers, none of which holds a range of several batches completely, it is cut.
MAX_PARTIAL_ANSWERS = 5

Range = tuple[int, int]
"""The first offset, and the offset behind the last."""


class Answer(enum.Enum):
    """What the leader's log has at an unreadable range."""

    RESTORED = enum.auto()
    UNREADABLE = enum.auto()  # there too, at least in part
    # Not what was here, or not all of it: the log is cut before the range.
    ANOTHER = enum.auto()


class MissingBatches:
    """The missing ranges of one leader epoch.

    `answered` is called once for each range that the leader has answered; for ANOTHER before the
    cut."""

    def __init__(
        self,
        leader_epoch: int,
        ranges: Iterable[Range],
        answered: Callable[[Range, Answer], None] = lambda *_: None,
    ) -> None:
        self.leader_epoch = leader_epoch
        self._ranges = list(ranges)
        self._answered = answered
        # Number of answers with only a part of the first range.
        self._partial_answers = 0

    def position(self, log: ReplicaLog) -> tuple[int, int] | None:
        """Returns the offset from which the leader is to send, and the epoch of the batch before
        it.

        Returns None if nothing is missing. The leader counts all that is below the offset."""
        while self._ranges and self._ranges[0][0] >= log.log_end_offset:
            self._drop_first()  # cut meanwhile
        while self._ranges and self._ranges[0][0] < log.log_start_offset:
            self._drop_first()
        if not self._ranges:
            return None
        first = self._ranges[0][0]
        return first, _epoch_before(log, first)

    def receive(self, log: ReplicaLog, batches: Sequence[Batch]) -> int | None:
        """Stores what the leader has sent from `position` on.

        Returns the offset at which the log has to be cut, or None. Raises `LogError`."""
        received: list[Batch] = []
        for batch in batches:
            if not self._ranges:
                return None
            first, following = self._ranges[0]
            header = batch.header
            expected = received[-1].header.next_offset if received else first
            if header.next_offset <= expected:
                continue  # between two ranges: it is not missing
            if is_damaged(header):
                received = []
                self._end_first(Answer.UNREADABLE)
                continue
            received.append(batch)
            if header.base_offset == expected and header.next_offset < following:
                continue
            if header.base_offset != expected or not log.restore(received):
                return self._give_up()
            received = []
            self._end_first(Answer.RESTORED)
        if received:
            # The answer had no room for more, or the leader's log ends there.
            self._partial_answers += 1
            if self._partial_answers >= MAX_PARTIAL_ANSWERS:
                return self._give_up()
        return None

    def _give_up(self) -> int:
        first = self._ranges[0][0]
        self._end_first(Answer.ANOTHER)
        self._ranges.clear()
        return first

    def drop_below(self, offset: int) -> bool:
        """Forgets ranges below the offset, where the leader's log begins. Returns whether there
        were any."""
        before = len(self._ranges)
        while self._ranges and self._ranges[0][0] < offset:
            self._drop_first()
        return len(self._ranges) < before

    def _end_first(self, answer: Answer) -> None:
        found = self._ranges[0]
        self._drop_first()
        self._answered(found, answer)

    def _drop_first(self) -> None:
        self._partial_answers = 0
        del self._ranges[0]


NOTHING_MISSING = MissingBatches(NO_EPOCH, ())


def _epoch_before(log: ReplicaLog, offset: int) -> int:
    epochs = [epoch for epoch, start in log.leader_epochs if start < offset]
    return epochs[-1] if epochs else NO_EPOCH
