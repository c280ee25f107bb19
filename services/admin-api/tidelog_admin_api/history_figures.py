"""The figures of one sample of the history, from the reports of brokers. Pure.

A figure that is not known completely is left out, so that a chart has a gap there: a sum without
the part of a silent broker would be a line that never was. Only partitions without a leader count
as not written, because no broker could have appended to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.client.descriptions import TopicDescription
from tidelog.inspection.state_reports import NOT_KNOWN, ReplicaState, ServiceState
from tidelog.inspection.topic_sizes import (
    AppendRate,
    ReplicaReports,
    ReportPair,
    TopicRate,
    TopicSize,
    rate_of,
    size_of,
)
from tidelog.model import NO_LEADER
from tidelog.state_changes.topic import is_internal
from tidelog_admin_api.bodies.cluster_bodies import PartitionCounts

# The name of a figure, and what it is about: nothing (the cluster), "topic" and a topic id,
# "broker" and a broker id; for the lag of a follower, topic id, partition and broker id.
Key = tuple[str | int, ...]
LAG = "lag_records"
CLUSTER_FIGURES = (
    "records_per_second",
    "bytes_per_second",
    "under_replicated",
    "without_leader",
    "max_lag_records",
)
TOPIC_FIGURES = (
    "records_per_second",
    "bytes_per_second",
    "approximate_records",
    "leader_bytes",
    "total_bytes",
    "max_lag_records",
)
BROKER_FIGURES = ("bytes_per_second", "log_bytes", "disk_free_bytes", "leaders", "replicas")


def topic_key(name: str, topic_id: str) -> Key:
    return name, "topic", topic_id


def broker_key(name: str, broker_id: int) -> Key:
    return name, "broker", broker_id


def lag_key(topic_id: str, partition: int, broker_id: int) -> Key:
    return LAG, topic_id, partition, broker_id


@dataclass(frozen=True, slots=True)
class Reported:
    """What brokers reported for one sample, and the topics that existed then.

    - `topics`: also internal ones.
    - `counts`: the worst since the sample before; None: not known.
    """

    topics: Sequence[TopicDescription]
    counts: PartitionCounts | None
    states: Sequence[ServiceState]
    reports: ReplicaReports


@dataclass(frozen=True, slots=True)
class FiguresByTopic:
    """Size and rate of each topic, by topic id."""

    as_of_ms: int = 0
    sizes: Mapping[str, TopicSize] = field(default_factory=dict)
    rates: Mapping[str, TopicRate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SampledFigures:
    """The known figures of one sample. `lags` are those of followers; `topics`: the figures that
    lists of topics show, which say what they lack instead of being left out."""

    figures: Mapping[Key, float]
    lags: Mapping[Key, float]
    sizes: Mapping[str, TopicSize]
    rates: Mapping[str, TopicRate]


def figures_of(was: Reported | None, now: Reported) -> SampledFigures:
    """Returns the figures between two samples. `was`: None for the first one, and after a gap."""
    return _Sampling(was, now).run()


class _Sampling:
    def __init__(self, was: Reported | None, now: Reported) -> None:
        self._was, self._now = was, now
        self._pair = ReportPair(was.reports, now.reports) if was is not None else None
        self._figures: dict[Key, float] = {}
        self._of_topics: dict[Key, float] = {}
        self._lags: dict[Key, float] = {}
        # Of each partition with a leader, without those of internal topics.
        self._highest_lags: list[float | None] = []
        self._sizes: dict[str, TopicSize] = {}
        self._rates: dict[str, TopicRate] = {}

    def run(self) -> SampledFigures:
        records, sizes = list[float | None](), list[float | None]()
        before = {topic.topic_id for topic in self._was.topics} if self._was else set()
        for topic in self._now.topics:
            written = self._topic(topic)
            if is_internal(topic.name):
                continue
            # A topic that is newer than the sample before has no rate yet.
            if topic.topic_id in before:
                records.append(written[0])
                sizes.append(written[1])
        if self._pair is not None:
            self._add(("records_per_second",), total(records))
            self._add(("bytes_per_second",), total(sizes))
        self._add(("max_lag_records",), highest(self._highest_lags))
        if (counts := self._now.counts) is not None:
            self._add(("under_replicated",), counts.under_replicated)
            self._add(("without_leader",), counts.without_leader)
        for state in self._now.states:
            self._broker(state)
        # Topics come last: there is no room for those of a cluster with thousands of them.
        figures = {**self._figures, **self._of_topics}
        return SampledFigures(figures, self._lags, self._sizes, self._rates)

    def _add(self, key: Key, value: float | None) -> None:
        if value is not None:
            self._figures[key] = value

    def _add_of(self, topic_id: str, name: str, value: float | None) -> None:
        if value is not None:
            self._of_topics[topic_key(name, topic_id)] = value

    def _topic(self, topic: TopicDescription) -> tuple[float | None, float | None]:
        """Adds the figures of a topic. Returns its records and bytes per second."""
        topic_id, reports = topic.topic_id, self._now.reports
        written = [self._written((topic_id, each.partition)) for each in topic.partitions]
        size = self._sizes[topic_id] = size_of(topic, reports)
        self._rates[topic_id] = rate_of(written)
        if not size.partitions_unknown:
            self._add_of(topic_id, "approximate_records", size.approximate_records)
            self._add_of(topic_id, "leader_bytes", size.leader_bytes)
        if not size.replicas_unknown:
            self._add_of(topic_id, "total_bytes", size.total_bytes)
        led = [n for n, each in enumerate(topic.partitions) if each.leader != NO_LEADER]
        lags = [self._follower_lags(topic_id, topic.partitions[n].partition) for n in led]
        if not is_internal(topic.name):
            self._highest_lags += lags
        self._add_of(topic_id, "max_lag_records", highest(lags) if led else None)
        if self._pair is None:
            return None, None
        rates = [self._rates_of((topic_id, topic.partitions[n].partition), written[n]) for n in led]
        records, sizes = total([each[0] for each in rates]), total([each[1] for each in rates])
        self._add_of(topic_id, "records_per_second", records)
        self._add_of(topic_id, "bytes_per_second", sizes)
        return records, sizes

    def _written(self, key: tuple[str, int]) -> AppendRate | None:
        return self._pair.written(key) if self._pair is not None else None

    def _rates_of(
        self, key: tuple[str, int], written: AppendRate | None
    ) -> tuple[float | None, float | None]:
        """Returns records and bytes per second of a partition with a leader."""
        if written is None:
            return None, None
        size = approximate_bytes(written, self._now.reports.leaders[key].replica)
        return written.records_per_second, size

    def _follower_lags(self, topic_id: str, partition: int) -> float | None:
        """Adds the lag of each follower of a partition. Returns the highest known one; None: no
        broker reports to lead it."""
        led = self._now.reports.leaders.get((topic_id, partition))
        if led is None:
            return None
        leader, most = led.replica.leader, 0
        for follower in leader.followers if leader is not None else ():
            if follower.lag_records != NOT_KNOWN:
                key = lag_key(topic_id, partition, follower.broker_id)
                self._lags[key] = follower.lag_records
                most = max(most, follower.lag_records)
        return most

    def _broker(self, state: ServiceState) -> None:
        broker = state.broker
        if broker is None:
            return
        if broker.disk_free_bytes != NOT_KNOWN:
            self._add(broker_key("disk_free_bytes", state.id), broker.disk_free_bytes)
        # A broker that starts does not report all of its replicas.
        if not broker.has_full_state:
            return
        self._add(broker_key("leaders", state.id), broker.leader_count)
        self._add(broker_key("replicas", state.id), broker.replica_count)
        self._add(
            broker_key("log_bytes", state.id), sum(each.size_bytes for each in broker.replicas)
        )
        self._add(
            broker_key("bytes_per_second", state.id), self._appended(state.id, broker.replicas)
        )

    def _appended(self, broker_id: int, replicas: Iterable[ReplicaState]) -> float | None:
        """Returns what was appended to the logs that a broker had in both reports."""
        if self._was is None or self._pair is None:
            return None
        if not self._pair.is_measured(broker_id):
            return None
        appended = 0.0
        for now in replicas:
            was = self._was.reports.replicas.get((now.topic_id, now.partition), {}).get(broker_id)
            written = self._pair.grown(broker_id, was, now) if was is not None else None
            if written is not None:
                appended += approximate_bytes(written, now) or 0
        return appended


def approximate_bytes(written: AppendRate, replica: ReplicaState) -> float | None:
    """Returns bytes per second. Where old segments were deleted meanwhile, they are estimated from
    the mean size of records: otherwise a topic at its retention limit would never have a rate."""
    if written.bytes_per_second is not None or written.records_per_second == 0:
        return written.bytes_per_second or 0.0
    records = replica.log_end_offset - replica.log_start_offset
    return written.records_per_second * replica.size_bytes / records if records > 0 else None


def total(parts: Sequence[float | None]) -> float | None:
    """
    >>> total([1.0, 2.0]), total([1.0, None]), total([])
    (3.0, None, 0)
    """
    return None if None in parts else sum(_known(parts))


def highest(parts: Sequence[float | None]) -> float | None:
    """
    >>> highest([1.0, 2.0]), highest([1.0, None]), highest([])
    (2.0, None, 0)
    """
    return None if None in parts else max(_known(parts), default=0)


def _known(parts: Iterable[float | None]) -> list[float]:
    return [part for part in parts if part is not None]
