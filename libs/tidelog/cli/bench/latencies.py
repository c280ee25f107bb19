"""A histogram of latencies in bounded memory. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

# The reported percentiles: by name, the share of latencies that are not larger.
REPORTED = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# Buckets between a power of two and the next: a percentile is at most 1/64 too high.
_SUB_BITS = 6


class Latencies:
    """Counts latencies in microseconds, in buckets whose width grows with the latency."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.max_ms: float | None = None

    def add(self, latency_ms: float, count: int = 1) -> None:
        """`latency_ms`: at least 0."""
        latency_us = int(latency_ms * 1000)
        shift = max(0, latency_us.bit_length() - _SUB_BITS - 1)
        self._buckets[(shift << _SUB_BITS) + (latency_us >> shift)] += count
        self.count += count
        if self.max_ms is None or latency_ms > self.max_ms:
            self.max_ms = latency_ms

    def percentile_ms(self, share: float) -> float | None:
        """Returns a latency that at least this share of all does not exceed; None without any."""
        if self.max_ms is None:
            return None
        rank = max(1, math.ceil(share * self.count))
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return min(_upper_us(bucket) / 1000, self.max_ms)
        return self.max_ms

    def as_document(self) -> Mapping[str, float | None] | None:
        """Returns the reported percentiles and the largest latency in milliseconds; None without
        any."""
        if not self.count:
            return None
        found = {name: self.percentile_ms(share) for name, share in REPORTED.items()}
        return found | {"max": self.max_ms}

    def __str__(self) -> str:
        document = self.as_document() or {}
        return ", ".join(f"{name} {ms:.1f} ms" for name, ms in document.items() if ms is not None)


def _upper_us(bucket: int) -> int:
    """Returns the end of a bucket."""
    shift = max(0, (bucket >> _SUB_BITS) - 1)
    return ((bucket - (shift << _SUB_BITS)) + 1) << shift
