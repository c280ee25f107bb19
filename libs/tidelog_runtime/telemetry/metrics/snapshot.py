"""The values of all metrics in one scrape, within the bounds of the catalogue."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_runtime.telemetry.metrics.metric import LabelValues, Metric, MetricType
from tidelog_runtime.telemetry.metrics.recording import Counts, Histogram, HistogramFamily


class MetricsSnapshot:
    """The values of one scrape.

    A metric that is not in the service's catalogue is a programming error and raises
    `KeyError`. A series beyond its metric's bound is left out and counted.
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self.values: dict[str, dict[LabelValues, float]] = {}
        self.distributions: dict[str, dict[LabelValues, Histogram]] = {}
        self.left_out = 0

    def metric(self, name: str) -> Metric:
        return self._metrics[name]

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Sets the value of a gauge, or of a counter that is kept elsewhere."""
        known = self._metrics[metric.name]
        if len(labels) != len(known.labels):
            raise ValueError(f"{metric.name} has the labels {known.labels}, not {labels}")
        series = self.values.setdefault(metric.name, {})
        if labels not in series and len(series) >= len(known.series) + known.bound:
            self.left_out += 1
            return
        series[labels] = value

    def set_counters(self, counts: Counts) -> None:
        for labels, value in counts.values.items():
            self.set(counts.metric, value, *labels)

    def set_histograms(self, distributions: HistogramFamily) -> None:
        self.distributions[self._metrics[distributions.metric.name].name] = distributions.series

    def begin(self) -> None:
        """Adds the series of counters and histograms that are known in advance, with 0."""
        for metric in self._metrics.values():
            if metric.type is MetricType.COUNTER:
                collected = self.values.get(metric.name, {})
                self.values[metric.name] = {**dict.fromkeys(metric.series, 0), **collected}
            elif metric.type is MetricType.HISTOGRAM and metric.name not in self.distributions:
                self.set_histograms(HistogramFamily(metric))
