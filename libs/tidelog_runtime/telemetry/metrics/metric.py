"""One metric of the catalogue: its name, what it tells, and what to do about it."""

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
    """`series`: the values of `labels` of each series that is known beforehand. Counters and
    histograms have them from the start, with 0, so that rates exist; a gauge is there when
    there is something to tell. `bound`: how many further ones there may be, where only a
    running cluster knows them (a topic, a broker)."""

    name: str
    type: MetricType
    tells: str
    remedy: str
    labels: tuple[str, ...] = ()
    series: tuple[LabelValues, ...] = ()
    bound: int = 0
    buckets: tuple[float, ...] = ()

    @property
    def help(self) -> str:
        return f"{self.tells} {self.remedy}"

    @property
    def max_series(self) -> int:
        """A histogram has one for each bucket, and +Inf, _sum and _count."""
        each = len(self.buckets) + 3 if self.type is MetricType.HISTOGRAM else 1
        return (len(self.series) + self.bound) * each

    def of(self, series: Iterable[LabelValues], bound: int = 0) -> Metric:
        """As one service has it, where services differ in the values of its labels."""
        return self._replace(series=tuple(series), bound=bound)


# Without labels there is one series.
_ALONE: tuple[LabelValues, ...] = ((),)


def gauge(name: str, tells: str, remedy: str, labels: LabelValues = (), bound: int = 0) -> Metric:
    return Metric(
        name, MetricType.GAUGE, tells, remedy, labels, () if labels else _ALONE, bound=bound
    )


def counter(
    name: str,
    tells: str,
    remedy: str,
    labels: LabelValues = (),
    series: Iterable[LabelValues] = (),
    bound: int = 0,
) -> Metric:
    known = tuple(series) if labels else _ALONE
    return Metric(name, MetricType.COUNTER, tells, remedy, labels, known, bound)


def histogram(
    name: str,
    tells: str,
    remedy: str,
    buckets: tuple[float, ...],
    labels: LabelValues = (),
    series: Iterable[LabelValues] = (),
) -> Metric:
    known = tuple(series) if labels else _ALONE
    return Metric(name, MetricType.HISTOGRAM, tells, remedy, labels, known, buckets=buckets)
