"""Throughput and latency second by second. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

BUCKET_MS = 1_000


class Point(NamedTuple):
    """`second`: of the monotonic clock."""

    second: int
    records: int
    median_ms: int
    p99_ms: int


@dataclass(slots=True)
class Series:
    """By second of the monotonic clock: records acknowledged, and the ms from the send of each
    batch to its acknowledgement."""

    records: dict[int, int] = field(default_factory=dict)
    latencies_ms: dict[int, list[int]] = field(default_factory=dict)

    def acknowledged(self, now_ms: int, records: int, latency_ms: int) -> None:
        second = now_ms // BUCKET_MS
        self.records[second] = self.records.get(second, 0) + records
        self.latencies_ms.setdefault(second, []).append(latency_ms)

    def points(self) -> list[Point]:
        """The points; a second without acknowledgements has 0."""
        if not self.records:
            return []
        points = []
        for second in range(min(self.records), max(self.records) + 1):
            latencies = sorted(self.latencies_ms.get(second, []))
            points.append(
                Point(
                    second,
                    self.records.get(second, 0),
                    percentile(latencies, 50),
                    percentile(latencies, 99),
                )
            )
        return points


def percentile(ordered: Sequence[int], percent: int) -> int:
    """0 for no values."""
    if not ordered:
        return 0
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
