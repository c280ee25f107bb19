"""Samples of lag, and the days for which they are rolled up. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tidelog.inspection.state_reports import NOT_KNOWN, ReplicaState, ServiceState
from tidelog.model import TopicPartition

REPLICA, QUERY, SILENT = "replica", "query", "silent"
SAMPLE_SCHEMA = StructType(
    [
        StructField("at_ms", LongType()),
        StructField("kind", StringType()),
        StructField("who", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("lag_records", LongType()),
        StructField("lag_bytes", LongType()),
        StructField("lag_ms", LongType()),
        StructField("in_sync", BooleanType()),
        StructField("problem", StringType()),
    ]
)


@dataclass(frozen=True, slots=True)
class LagSample:
    """The lag of one follower or query in one partition. None: unknown.

    - `who`: the id of the follower's broker, or the name of the query, or the query's id if it
      has no name.
    - `problem`: the reason why nothing is known; only with `kind` `SILENT`.
    """

    at_ms: int
    kind: str
    who: str
    topic: str | None = None
    partition: int | None = None
    lag_records: int | None = None
    lag_bytes: int | None = None
    lag_ms: int | None = None
    in_sync: bool | None = None
    problem: str | None = None


class QueryPosition(NamedTuple):
    """The position of the record that a query reads next."""

    query: str
    partition: TopicPartition
    next_offset: int


def to_value(sample: LagSample) -> bytes:
    fields = {name: value for name, value in asdict(sample).items() if value is not None}
    return json.dumps(fields, separators=(",", ":")).encode()


def leaders_of(states: Iterable[ServiceState]) -> dict[TopicPartition, ReplicaState]:
    """Returns the leader of each partition.

    If several replicas claim to lead, the one in the newest epoch leads, and the others do not
    know yet.
    """
    found: dict[TopicPartition, ReplicaState] = {}
    for state in states:
        for replica in state.broker.replicas if state.broker else ():
            name = TopicPartition(replica.topic, replica.partition)
            known = found.get(name)
            if replica.leader is not None and (
                known is None or known.leader_epoch < replica.leader_epoch
            ):
                found[name] = replica
    return found


def replica_samples(at_ms: int, leaders: Mapping[TopicPartition, ReplicaState]) -> list[LagSample]:
    """Samples as leaders measure their followers: the lag of a dead follower grows."""
    return [
        LagSample(
            at_ms,
            REPLICA,
            str(follower.broker_id),
            name.topic,
            name.partition,
            _known(follower.lag_records),
            _known(follower.lag_bytes),
            _known(follower.lag_ms),
            follower.in_isr,
        )
        for name, leader in sorted(leaders.items())
        if leader.leader is not None
        for follower in leader.leader.followers
    ]


def query_samples(
    at_ms: int,
    positions: Iterable[QueryPosition],
    leaders: Mapping[TopicPartition, ReplicaState],
) -> list[LagSample]:
    """Samples against the current high watermark.

    The lag of a query that hangs grows, because its own last reading is not used.
    """
    return [
        LagSample(
            at_ms,
            QUERY,
            position.query,
            position.partition.topic,
            position.partition.partition,
            max(leaders[position.partition].high_watermark - position.next_offset, 0)
            if position.partition in leaders
            else None,
        )
        for position in positions
    ]


def silent_sample(at_ms: int, who: str, problem: str) -> LagSample:
    return LagSample(at_ms, SILENT, who, problem=problem)


def _known(measure: int) -> int | None:
    return None if measure == NOT_KNOWN else measure


DAY_MS = 86_400_000
# A record has the time of its sample, and the log may be slightly out of order around midnight.
SLACK_MS = 600_000


class Days(NamedTuple):
    """A range of days; both ends are included."""

    first: date
    last: date

    @property
    def all(self) -> list[date]:
        count = (self.last - self.first).days + 1
        return [self.first + timedelta(days=n) for n in range(count)]

    @property
    def start_ms(self) -> int:
        return start_ms(self.first)

    @property
    def end_ms(self) -> int:
        return start_ms(self.last) + DAY_MS


def start_ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000


def day_of(at_ms: int) -> date:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date()


def incomplete_days(days: Days, oldest_ms: Iterable[int]) -> list[date]:
    """Returns the days of which the log has deleted samples, or may have.

    - `oldest_ms`: time of the first record of each partition from which records were deleted.
    """
    oldest = max(oldest_ms, default=0)
    return [day for day in days.all if start_ms(day) <= oldest]
