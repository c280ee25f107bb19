"""Checks of one partition that need no sends: the order in which each client received records, the
committed end, and the digests of its replicas."""

from __future__ import annotations

from tidelog.history.anomalies import Anomaly, PartitionFindings, Reference
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

_Numbered = tuple[int, ReplicaDigest]


class DigestComparison:
    """Compares digests of the partition's replicas over the same range."""

    def __init__(self) -> None:
        # Range → digest → brokers that reported it, the first report of each.
        self._ranges: dict[tuple[int, int], dict[str, list[_Numbered]]] = {}

    def add(self, line: int, digest: ReplicaDigest) -> None:
        by_digest = self._ranges.setdefault((digest.start_offset, digest.end_offset), {})
        same = by_digest.setdefault(digest.digest, [])
        if all(other.broker_id != digest.broker_id for _, other in same):
            same.append((line, digest))

    def check(self, findings: PartitionFindings) -> None:
        for (start, end), by_digest in sorted(self._ranges.items()):
            if len(by_digest) > 1:
                findings.add(
                    Anomaly.REPLICA_DIVERGENCE,
                    f"{len(by_digest)} different contents of offsets {start} to {end - 1}",
                    [_reference(*one) for same in by_digest.values() for one in same],
                )


def _reference(line: int, digest: ReplicaDigest) -> Reference:
    return Reference(line, digest.time_ms, f"broker {digest.broker_id} has digest {digest.digest}")


class ReaderCheck:
    """Takes operations in the order of their lines. Call `finish` once at the end.

    `marks` may grow until then. Memory grows with clients and findings, not with polls or records.
    """

    def __init__(self, findings: PartitionFindings, marks: LossMarks) -> None:
        self._findings = findings
        self.polls = PollOrder(findings)
        self._high_watermarks = HighWatermarks(findings, marks)
        self._digests = DigestComparison()
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
