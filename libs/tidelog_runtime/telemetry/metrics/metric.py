"""One metric of the catalogue: its name, its meaning, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

LabelValues = tuple[str, ...]


class MetricType(enum.Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """A metric and its series.

    - `series`: label values of the series that are known in advance. Counters and histograms
      have these series with 0 from the start, so that rates exist; gauges only once they have a
      value.
    - `bound`: maximum number of further series, whose labels only a running cluster knows (a
      topic, a broker).
    """

    name: str
    type: MetricType
    meaning: str
    remedy: str
    labels: tuple[str, ...] = ()
    series: tuple[LabelValues, ...] = ()
    bound: int = 0
    buckets: tuple[float, ...] = ()

    @property
    def help(self) -> str:
        return f"{self.meaning} {self.remedy}"

    def of(self, series: Iterable[LabelValues], bound: int = 0) -> Metric:
        """Returns the metric with the series of one service."""
        return self._replace(series=tuple(series), bound=bound)


# The single series of a metric without labels.
_ALONE: tuple[LabelValues, ...] = ((),)


def gauge(name: str, meaning: str, remedy: str, labels: LabelValues = (), bound: int = 0) -> Metric:
    return Metric(
        name, MetricType.GAUGE, meaning, remedy, labels, () if labels else _ALONE, bound=bound
    )


def counter(
    name: str,
    meaning: str,
    remedy: str,
    labels: LabelValues = (),
    series: Iterable[LabelValues] = (),
    bound: int = 0,
) -> Metric:
    known = tuple(series) if labels else _ALONE
    return Metric(name, MetricType.COUNTER, meaning, remedy, labels, known, bound)


def histogram(
    name: str,
    meaning: str,
    remedy: str,
    buckets: tuple[float, ...],
    labels: LabelValues = (),
    series: Iterable[LabelValues] = (),
) -> Metric:
    known = tuple(series) if labels else _ALONE
    return Metric(name, MetricType.HISTOGRAM, meaning, remedy, labels, known, buckets=buckets)
