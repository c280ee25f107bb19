"""What became of the lines that were produced. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.cli.exit_status import ExitStatus, status_of
from tidelog.cli.output import plural, size_text
from tidelog.errors import ErrorCode, TidelogError

# Lines that are named one by one; the others are counted by reason.
MAX_NAMED_LINES = 10
# Reasons that are told apart.
MAX_REASONS = 100
OTHER_REASONS = "other reasons"

# The fault of a line, or of the batch it was in: the next ones may well be taken.
_GO_ON = frozenset({ErrorCode.BATCH_TOO_LARGE, ErrorCode.INVALID_BATCH})


class UnsentLine(NamedTuple):
    number: int
    reason: str


@dataclass(slots=True)
class ProduceTally:
    """`stopped`: a failure that the lines after it would share, so that none is taken
    any more."""

    taken: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    unsent: int = 0
    first_unsent: int | None = None
    stopped: bool = False
    status: ExitStatus = ExitStatus.DONE
    named: list[UnsentLine] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def in_flight(self) -> int:
        return self.taken - self.delivered - self.unsent

    def line_taken(self) -> None:
        self.taken += 1

    def line_delivered(self, size_bytes: int) -> None:
        self.delivered += 1
        self.delivered_bytes += size_bytes

    def line_failed(self, number: int, error: Exception) -> None:
        self.unsent += 1
        self.first_unsent = min(number, self.first_unsent or number)
        reason = str(error)
        if len(self.named) < MAX_NAMED_LINES:
            self.named.append(UnsentLine(number, reason))
        known = reason in self.reasons or len(self.reasons) < MAX_REASONS
        self.reasons[reason if known else OTHER_REASONS] += 1
        if isinstance(error, TidelogError):
            self.stopped = self.stopped or error.code not in _GO_ON
        # The gravest: an outcome that is not known is worse than a refusal.
        self.status = max(self.status, status_of(error))

    def report_lines(self) -> list[str]:
        """Which lines are not known to be delivered, and why; empty where all are."""
        if not self.unsent:
            return []
        lines = [f"{plural(self.unsent, 'line')} not delivered, or not known to be:"]
        lines += [f"  line {line.number}: {line.reason}" for line in sorted(self.named)]
        if self.unsent > len(self.named):
            lines.append(f"  and {self.unsent - len(self.named):,} more; in all:")
            lines += [f"  {count:,} × {reason}" for reason, count in self.reasons.most_common()]
        return lines

    def summary(self, topic: str, seconds: float, *, acknowledged: bool) -> str:
        """One line with counts and rates."""
        records_per_second = self.delivered / seconds if seconds else 0.0
        bytes_per_second = self.delivered_bytes / seconds if seconds else 0.0
        verb = "delivered" if acknowledged else "sent, without acknowledgement,"
        return (
            f"{plural(self.delivered, 'record')} ({size_text(self.delivered_bytes)}) {verb} to "
            f"{topic} in {seconds:.2f} s: {records_per_second:,.0f} records/s, "
            f"{size_text(bytes_per_second)}/s"
        )
