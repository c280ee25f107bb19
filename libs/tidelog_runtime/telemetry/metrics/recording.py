"""Counters and histograms as plain numbers, which a scrape reads.

They need no locks, because all of them belong to one event loop.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from tidelog_runtime.telemetry.metrics.metric import LabelValues, Metric


class Counts:
    """All series of a counter.

    Series beyond the metric's bound are not counted, so that the memory is bounded.
    """

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[LabelValues, int] = dict.fromkeys(metric.series, 0)
        self._most = len(metric.series) + metric.bound

    def add(self, *labels: str, amount: int = 1) -> None:
        known = self.values.get(labels)
        if known is not None:
            self.values[labels] = known + amount
        elif len(self.values) < self._most:
            self.values[labels] = amount


class Histogram:
    """One series of a histogram of seconds.

    - `counts`: of each bucket alone; the last one is for values above all bounds.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        # A bucket holds values up to and including its bound.
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[int]:
        return list(accumulate(self.counts))


class HistogramFamily:
    """All series of a histogram: those that the metric names."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.series = {labels: Histogram(metric.buckets) for labels in metric.series}

    def of(self, *labels: str) -> Histogram:
        return self.series[labels]
