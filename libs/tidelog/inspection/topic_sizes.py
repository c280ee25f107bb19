"""Sizes, record counts and write rates of topics, from the states that brokers report. Pure.

A figure is None if no broker reports any part of it, never 0. The counts of unknown partitions and
replicas say how much of a figure is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tidelog.inspection.replica_reports import leader_of
from tidelog.inspection.state_reports import ReplicaState, ServiceState


class AssignedPartition(Protocol):
    @property
    def partition(self) -> int: ...

    @property
    def replicas(self) -> Sequence[int]: ...


class AssignedTopic(Protocol):
    """A topic with its partitions, such as `TopicDescription`."""

    @property
    def topic_id(self) -> str: ...

    @property
    def partitions(self) -> Sequence[AssignedPartition]: ...


@dataclass(frozen=True, slots=True)
class TopicSize:
    """Figures of all partitions together.

    - `approximate_records`: from the log start to the log end of each leader. That is the number of
      records, unless offsets were skipped.
    - `leader_bytes`: of the leaders' logs, which is the data without its copies.
    - `total_bytes`: of the logs of all replicas.
    - `partitions_unknown`: partitions of which no broker reports to be the leader. They count in
      neither of the first two.
    - `replicas_unknown`: assigned replicas that no broker reports. They do not count in the third.
    """

    approximate_records: int | None
    leader_bytes: int | None
    total_bytes: int | None
    partitions_unknown: int
    replicas_unknown: int


@dataclass(frozen=True, slots=True)
class TopicRate:
    """What leaders appended between two reports, per second. `partitions_unmeasured`: partitions
    without a rate, because their leader did not report twice or has changed. `bytes_per_second`
    lacks the partitions whose oldest segments were deleted meanwhile, too."""

    records_per_second: float | None
    bytes_per_second: float | None
    partitions_unmeasured: int


PartitionKey = tuple[str, int]  # topic id and partition


@dataclass(frozen=True, slots=True)
class LedReplica:
    """The leader of a partition and its broker."""

    broker_id: int
    replica: ReplicaState


class ReplicaReports:
    """Replicas as their brokers report them, with the leader of each partition.

    - `reported_at_ms`: time of the report by the clock of each broker process, by broker id and
      start time
    """

    def __init__(self, states: Iterable[ServiceState]) -> None:
        self.replicas: dict[PartitionKey, dict[int, ReplicaState]] = {}
        self.reported_at_ms: dict[tuple[int, int], int] = {}
        for state in states:
            if state.broker is None:
                continue
            self.reported_at_ms[state.id, state.started_at_ms] = state.now_ms
            for replica in state.broker.replicas:
                key = (replica.topic_id, replica.partition)
                self.replicas.setdefault(key, {})[state.id] = replica
        self.leaders = dict(self._leaders())

    def _leaders(self) -> Iterator[tuple[PartitionKey, LedReplica]]:
        for key, replicas in self.replicas.items():
            leader = leader_of(replicas)
            found = (LedReplica(b, replica) for b, replica in replicas.items() if replica is leader)
            if (led := next(found, None)) is not None:
                yield key, led


@dataclass(frozen=True, slots=True)
class AppendRate:
    """What was appended to one log, per second. `bytes_per_second` is None if the oldest segments
    were deleted meanwhile."""

    records_per_second: float
    bytes_per_second: float | None


class ReportPair:
    """Two reports of the brokers.

    Time is measured by the clock of each broker, so that late answers do not distort a rate."""

    def __init__(self, earlier: ReplicaReports, later: ReplicaReports) -> None:
        self._earlier, self._later = earlier, later
        began = earlier.reported_at_ms
        self._elapsed_ms = {
            process[0]: at_ms - began[process]
            for process, at_ms in later.reported_at_ms.items()
            if process in began
        }

    def is_measured(self, broker_id: int) -> bool:
        """Returns whether the same process of the broker reported twice."""
        return self._elapsed_ms.get(broker_id, 0) > 0

    def written(self, key: PartitionKey) -> AppendRate | None:
        """Returns the rate of a partition's leader. None: it did not report twice or has changed.

        The log of a new leader may end before that of the previous one."""
        was, now = self._earlier.leaders.get(key), self._later.leaders.get(key)
        if was is None or now is None or was.broker_id != now.broker_id:
            return None
        if was.replica.leader_epoch != now.replica.leader_epoch:
            return None
        return self.grown(now.broker_id, was.replica, now.replica)

    def grown(self, broker_id: int, was: ReplicaState, now: ReplicaState) -> AppendRate | None:
        """Returns the rate of one replica of that broker, or None if its log has become shorter."""
        took_ms = self._elapsed_ms.get(broker_id, 0)
        records = now.log_end_offset - was.log_end_offset
        if took_ms <= 0 or records < 0:
            return None
        size = now.size_bytes - was.size_bytes
        is_measured = now.log_start_offset == was.log_start_offset and size >= 0
        return AppendRate(
            records * 1_000 / took_ms, size * 1_000 / took_ms if is_measured else None
        )


def topic_sizes(
    topics: Iterable[AssignedTopic], states: Iterable[ServiceState]
) -> dict[str, TopicSize]:
    """Returns the size of each topic, by topic id."""
    reports = ReplicaReports(states)
    return {topic.topic_id: size_of(topic, reports) for topic in topics}


def size_of(topic: AssignedTopic, reports: ReplicaReports) -> TopicSize:
    records, leader_bytes, total_bytes = list[int](), list[int](), list[int]()
    replicas_unknown = 0
    for partition in topic.partitions:
        key = (topic.topic_id, partition.partition)
        replicas = reports.replicas.get(key, {})
        led = reports.leaders.get(key)
        if led is not None:
            records.append(led.replica.log_end_offset - led.replica.log_start_offset)
            leader_bytes.append(led.replica.size_bytes)
        total_bytes += [replica.size_bytes for replica in replicas.values()]
        replicas_unknown += sum(broker not in replicas for broker in partition.replicas)
    return TopicSize(
        _sum_of(records),
        _sum_of(leader_bytes),
        _sum_of(total_bytes),
        len(topic.partitions) - len(records),
        replicas_unknown,
    )


def topic_rates(
    topics: Iterable[AssignedTopic],
    earlier: Iterable[ServiceState],
    later: Iterable[ServiceState],
) -> dict[str, TopicRate]:
    """Returns the write rate of each topic between two reports of the brokers, by topic id."""
    pair = ReportPair(ReplicaReports(earlier), ReplicaReports(later))
    return {
        topic.topic_id: rate_of(
            [pair.written((topic.topic_id, each.partition)) for each in topic.partitions]
        )
        for topic in topics
    }


def rate_of(partitions: Sequence[AppendRate | None]) -> TopicRate:
    """Returns the rate of a topic from those of its partitions."""
    measured = [each for each in partitions if each is not None]
    return TopicRate(
        _sum_of([each.records_per_second for each in measured]),
        _sum_of([e.bytes_per_second for e in measured if e.bytes_per_second is not None]),
        len(partitions) - len(measured),
    )


_Figure = TypeVar("_Figure", int, float)


def _sum_of(parts: Sequence[_Figure]) -> _Figure | None:
    return sum(parts) if parts else None
