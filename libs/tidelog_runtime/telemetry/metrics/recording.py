"""What is counted where it happens, as plain numbers that a scrape reads: no locks, because
all of it belongs to one event loop."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from tidelog_runtime.telemetry.metrics.metric import LabelValues, Metric


class Counts:
    """All series of a counter. Beyond the metric's bound further ones are not kept: what is
    counted there is missing, and nothing grows."""

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


class Distribution:
    """One series of a histogram of seconds. `counts`: of each bucket by itself; the last
    is for what is above all of them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        # A bucket holds what is at most its bound.
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[int]:
        return list(accumulate(self.counts))


class Distributions:
    """All series of a histogram; there are no others than the metric names."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.series = {labels: Distribution(metric.buckets) for labels in metric.series}

    def of(self, *labels: str) -> Distribution:
        return self.series[labels]
