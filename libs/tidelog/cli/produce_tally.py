"""Counts the outcomes of produced lines. No I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.cli.exit_status import ExitStatus, status_of
from tidelog.errors import ErrorCode, TidelogError
from tidelog.phrases import plural
from tidelog.units import size_text

# Failures that are named individually; others are counted by kind.
MAX_NAMED_FAILURES = 10
NO_RECORD = "not a record"

# Errors of a line, or of its batch. The following lines may still succeed.
_ERRORS_OF_LINES = frozenset({ErrorCode.BATCH_TOO_LARGE, ErrorCode.INVALID_BATCH})


class UnsentLines(NamedTuple):
    """`unsent` of the lines `first` to `last` were not delivered."""

    first: int
    last: int
    unsent: int
    reason: str

    def __str__(self) -> str:
        if self.first == self.last:
            return f"line {self.first:,}: {self.reason}"
        which = f"lines {self.first:,} to {self.last:,}"
        if self.unsent <= self.last - self.first:
            which = f"{self.unsent:,} of {which}"
        return f"{which}: {self.reason}"


@dataclass(slots=True)
class ProduceTally:
    """The outcomes so far.

    - `stops_at_lines`: whether a line that cannot be sent, or is rejected, stops the rest, too.
    - `stopped`: an error that would affect the following lines too has occurred, or one at which
      the caller wants to stop, so that no more lines are sent.
    """

    stops_at_lines: bool = False
    taken: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    unsent: int = 0
    first_unsent: int | None = None
    stopped: bool = False
    status: ExitStatus = ExitStatus.DONE
    named: list[UnsentLines] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def in_flight(self) -> int:
        return self.taken - self.delivered - self.unsent

    def take(self, count: int) -> None:
        self.taken += count

    def delivered_more(self, count: int, size_bytes: int) -> None:
        self.delivered += count
        self.delivered_bytes += size_bytes

    def failed(self, first: int, last: int, count: int, error: BaseException) -> None:
        self.unsent += count
        self.first_unsent = min(first, self.first_unsent or first)
        if len(self.named) < MAX_NAMED_FAILURES:
            self.named.append(UnsentLines(first, last, count, str(error)))
        self.kinds[error.code.name if isinstance(error, TidelogError) else NO_RECORD] += count
        of_line = not isinstance(error, TidelogError) or error.code in _ERRORS_OF_LINES
        self.stopped = self.stopped or self.stops_at_lines or not of_line
        # The worst status counts: an unknown outcome is worse than a rejection.
        self.status = max(self.status, status_of(error))

    def report_lines(self) -> list[str]:
        """Returns which lines are not known to be delivered, and why. Empty if all are."""
        if not self.unsent:
            return []
        lines = [f"{plural(self.unsent, 'line')} not delivered, or not known to be:"]
        lines += [f"  {named}" for named in sorted(self.named)]
        others = self.unsent - sum(named.unsent for named in self.named)
        if others:
            lines.append(f"  and {others:,} more; in all:")
            lines += [f"  {count:,} × {kind}" for kind, count in self.kinds.most_common()]
        return lines

    def progress(self, seconds: float, delivered_before: int, share: float | None) -> str:
        """Returns a line about the records delivered so far.

        - `delivered_before`: those that were delivered `seconds` ago, for the current rate.
        - `share`: of the input that was read; None: not known.
        """
        rate = (self.delivered - delivered_before) / seconds if seconds else 0.0
        percent = "" if share is None else f", {share:.0%} of the input".replace("%", " %")
        unsent = f", {self.unsent:,} not delivered" if self.unsent else ""
        return (
            f"{plural(self.delivered, 'record')} ({size_text(self.delivered_bytes)}) delivered, "
            f"{rate:,.0f} records/s{percent}{unsent}"
        )

    def summary(self, topic: str, seconds: float, *, acknowledged: bool) -> str:
        """Returns one line with counts and rates."""
        records_per_second = self.delivered / seconds if seconds else 0.0
        bytes_per_second = self.delivered_bytes / seconds if seconds else 0.0
        verb = "delivered" if acknowledged else "sent, without acknowledgement,"
        return (
            f"{plural(self.delivered, 'record')} ({size_text(self.delivered_bytes)}) {verb} to "
            f"{topic} in {seconds:.2f} s: {records_per_second:,.0f} records/s, "
            f"{size_text(bytes_per_second)}/s"
        )
