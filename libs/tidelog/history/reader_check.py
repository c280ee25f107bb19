"""Checks of one partition that need no sends: the order in which each client received records, the
committed end, and the digests of its replicas."""

from __future__ import annotations

from tidelog.history.anomalies import PartitionFindings
from tidelog.history.client_operations import (
    HighWatermarkEnded,
    HighWatermarkInvoked,
    PollEnded,
    PollInvoked,
    ReplicaDigest,
)
from tidelog.history.evidence import PollSource
from tidelog.history.high_watermarks import HighWatermarks
from tidelog.history.loss_marks import LossMarks
from tidelog.history.poll_order import PollOrder
from tidelog.history.replica_digests import ReplicaDigests


class ReaderCheck:
    """Takes operations in the order of their lines. Call `finish` once at the end.

    `marks` may grow until then. Memory grows with clients and findings, not with polls or records.
    """

    def __init__(self, findings: PartitionFindings, marks: LossMarks) -> None:
        self._findings = findings
        self.polls = PollOrder(findings)
        self._high_watermarks = HighWatermarks(findings, marks)
        self._digests = ReplicaDigests()
        self.drain_line: int | None = None
        self.poll_count = 0
        self.record_count = 0

    def add_poll_invoked(self, line: int, poll: PollInvoked) -> None:
        if poll.final and self.drain_line is None:
            self.drain_line = line

    def add_poll(self, line: int, poll: PollEnded) -> PollSource:
        if poll.final and self.drain_line is None:
            self.drain_line = line
        self.poll_count += 1
        self.record_count += len(poll.offsets)
        source = PollSource(line, poll.time_ms, poll.client, poll.final)
        self.polls.add(poll, source)
        self._high_watermarks.add_poll(poll, line)
        return source

    def add_hw_invoked(self, line: int, reading: HighWatermarkInvoked) -> None:
        self._high_watermarks.add_invoked(reading, line)

    def add_hw(self, line: int, reading: HighWatermarkEnded) -> None:
        """Raises `HistoryError` if the reading was not invoked."""
        self._high_watermarks.add_ended(reading, line)

    def add_digest(self, line: int, digest: ReplicaDigest) -> None:
        self._digests.add(line, digest)

    def finish(self) -> None:
        self._high_watermarks.check()
        self._digests.check(self._findings)
