"""Compares digests of one partition's replicas over the same range."""

from __future__ import annotations

from tidelog.history.anomalies import Anomaly, PartitionFindings, Reference
from tidelog.history.client_operations import ReplicaDigest

_Numbered = tuple[int, ReplicaDigest]


class ReplicaDigests:
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
