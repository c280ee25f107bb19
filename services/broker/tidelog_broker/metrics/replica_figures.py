"""The figures of all replicas of a broker, added up, and the few that are told one by one.
Pure; looks at the disk only for the age of what the worst followers lack.

A follower's lag in seconds needs a look into the log. What bounds it needs none: the time
since the follower was last known to have everything. So the worst are chosen by that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import nlargest
from typing import NamedTuple

from tidelog.inspection.model import NOT_KNOWN
from tidelog.model import NO_LEADER, NO_OFFSET
from tidelog_broker.partition.isr import FollowerProgress
from tidelog_broker.partition.lag import Lag, lag_of
from tidelog_broker.partition.leading import Leading
from tidelog_broker.partition.partition import Partition
from tidelog_runtime.metadata.schema import LeaderAndIsr
from tidelog_runtime.telemetry.metrics import broker_catalogue as catalogue
from tidelog_runtime.telemetry.metrics.broker_catalogue import (
    MAX_LAG_SERIES,
    MAX_PARTITION_SERIES,
    MAX_TOPIC_SERIES,
)
from tidelog_runtime.telemetry.metrics.sheet import Sheet

# A follower that was caught up within so long is on its way, and not behind.
LAGGING_AFTER_MS = 1_000
# Of one follower, to find the oldest record that it lacks anywhere.
MAX_AGES_READ_PER_FOLLOWER = 20


class Judges(NamedTuple):
    """Whether a high watermark stands still; whether a consumer waits for it to move."""

    is_stalled: Callable[[Partition], bool]
    is_waited_for: Callable[[Partition], bool]


class Pair(NamedTuple):
    """A follower of a partition that is led here. `behind_ms`: since it was last known to
    have everything, or since the epoch began. `end`: NO_OFFSET where it has not fetched in
    this epoch."""

    behind_ms: int
    partition: Partition
    follower: int
    end: int


@dataclass(slots=True)
class FollowerFigures:
    """One follower over all partitions that are led here. `fetched_ms`, `granted_ms`: how
    long ago its last fetch was, and the first epoch in which it has not fetched began."""

    lag_records: int = 0
    lag_bytes: int = 0
    lagging: int = 0
    out_of_isr: int = 0
    max_lag_ms: int = 0
    fetched_ms: int = NOT_KNOWN
    granted_ms: int = NOT_KNOWN
    behind: list[Pair] = field(default_factory=list)


class ReplicaFigures:
    """`add` each replica, then `tell`. `judges`: of partitions that are led here and have
    records above their high watermark."""

    def __init__(self, now_ms: int, wall_ms: int, judges: Judges) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._judges = judges
        self.replicas = 0
        self.leaders = 0
        self.leaderless = 0
        self.out_of_service = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.at_min_isr = 0
        self.hw_stalled = 0
        self.uncommitted_records = 0
        self.waited_for = 0
        self.size_bytes = 0
        self.segments = 0
        self.unflushed_records = 0
        self.followers: dict[int, FollowerFigures] = {}
        self._topic_bytes: dict[str, int] = {}
        self._sizes: list[tuple[int, int, Partition]] = []
        # Who has everything, as many as there may be series.
        self._caught_up: list[Pair] = []

    # -- adding up -------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        log, topic = partition.log, partition.name.topic
        size = log.size_bytes
        self.replicas += 1
        self.size_bytes += size
        self.segments += log.segment_count
        self.unflushed_records += log.log_end_offset - log.flushed_offset
        self._topic_bytes[topic] = self._topic_bytes.get(topic, 0) + size
        # The number breaks ties, so that partitions need no order.
        self._sizes.append((size, -self.replicas, partition))
        state, leading = partition.state, partition.leading
        if not partition.in_service:
            self.out_of_service += 1
        elif state is None or state.leader == NO_LEADER:
            self.leaderless += 1
        elif leading is not None:
            self._add_led(partition, state, leading)

    def _add_led(self, partition: Partition, state: LeaderAndIsr, leading: Leading) -> None:
        self.leaders += 1
        end = partition.log.log_end_offset
        in_sync, replicas = len(state.isr), len(state.replicas)
        if in_sync < replicas:
            self.under_replicated += 1
            if in_sync < state.min_isr:
                self.under_min_isr += 1
            elif in_sync == state.min_isr:
                self.at_min_isr += 1
        if partition.high_watermark < end:
            self.uncommitted_records += end - partition.high_watermark
            self.hw_stalled += self._judges.is_stalled(partition)
            self.waited_for += self._judges.is_waited_for(partition)
        isr_ids = state.isr_ids if in_sync < replicas else None
        for follower, progress in leading.followers.items():
            figures = self.followers.get(follower)
            if figures is None:
                figures = self.followers[follower] = FollowerFigures()
            if isr_ids is not None and follower not in isr_ids:
                figures.out_of_isr += 1
            self._add_progress(figures, partition, follower, progress, end)

    def _add_progress(
        self,
        figures: FollowerFigures,
        partition: Partition,
        follower: int,
        progress: FollowerProgress,
        leader_end: int,
    ) -> None:
        now_ms, end = self._now_ms, progress.log_end_offset
        behind_ms = now_ms - progress.last_caught_up_ms
        if end == NO_OFFSET:
            figures.granted_ms = max(figures.granted_ms, now_ms - progress.last_fetch_ms)
            figures.lagging += behind_ms > LAGGING_AFTER_MS
            figures.behind.append(Pair(behind_ms, partition, follower, end))
            return
        fetch_ms = progress.last_fetch_ms
        if progress.session is not None:
            fetch_ms = max(fetch_ms, progress.session.last_request_ms)
        age_ms = now_ms - fetch_ms
        if figures.fetched_ms == NOT_KNOWN or age_ms < figures.fetched_ms:
            figures.fetched_ms = age_ms
        if end < leader_end:
            figures.lag_records += leader_end - end
            figures.lag_bytes += partition.log.bytes_from(end)
            figures.lagging += behind_ms > LAGGING_AFTER_MS
            figures.behind.append(Pair(behind_ms, partition, follower, end))
        elif len(self._caught_up) < MAX_LAG_SERIES:
            self._caught_up.append(Pair(0, partition, follower, end))

    # -- telling -----------------------------------------------------------------------

    def tell(self, sheet: Sheet) -> Iterator[None]:
        """Comes back now and then, so that the event loop gets its turn."""
        self._tell_totals(sheet)
        self._tell_sizes(sheet)
        yield
        yield from self._tell_worst(sheet)
        yield from self._tell_followers(sheet)

    def _tell_totals(self, sheet: Sheet) -> None:
        sheet.tell(catalogue.REPLICAS, self.replicas)
        sheet.tell(catalogue.LEADERS, self.leaders)
        sheet.tell(catalogue.LEADERLESS, self.leaderless)
        sheet.tell(catalogue.OUT_OF_SERVICE, self.out_of_service)
        sheet.tell(catalogue.UNDER_REPLICATED, self.under_replicated)
        sheet.tell(catalogue.UNDER_MIN_ISR, self.under_min_isr)
        sheet.tell(catalogue.AT_MIN_ISR, self.at_min_isr)
        sheet.tell(catalogue.HW_STALLED, self.hw_stalled)
        sheet.tell(catalogue.UNCOMMITTED_RECORDS, self.uncommitted_records)
        sheet.tell(catalogue.WAITING_CONSUMERS, self.waited_for)
        sheet.tell(catalogue.LOG_SIZE, self.size_bytes)
        sheet.tell(catalogue.LOG_SEGMENTS, self.segments)
        sheet.tell(catalogue.UNFLUSHED_RECORDS, self.unflushed_records)

    def _tell_sizes(self, sheet: Sheet) -> None:
        largest = nlargest(MAX_TOPIC_SERIES, ((b, t) for t, b in self._topic_bytes.items()))
        for size, topic in largest:
            sheet.tell(catalogue.TOPIC_LOG_SIZE, size, topic)
        for size, _, partition in nlargest(MAX_PARTITION_SERIES, self._sizes):
            topic, number = partition.name
            sheet.tell(catalogue.PARTITION_LOG_SIZE, size, topic, str(number))

    def _tell_worst(self, sheet: Sheet) -> Iterator[None]:
        """One series for each follower of the worst partitions; where there is room, of
        those that have everything, too, so that a graph is there before it is needed."""
        behind = [pair for figures in self.followers.values() for pair in figures.behind]
        known = [pair for pair in behind if pair.end != NO_OFFSET]
        worst = nlargest(MAX_LAG_SERIES, known, key=lambda pair: pair.behind_ms)
        told = 0
        for pair in [*worst, *self._caught_up][:MAX_LAG_SERIES]:
            lag = self._lag_of(pair)
            topic, number = pair.partition.name
            labels = (topic, str(number), str(pair.follower))
            sheet.tell(catalogue.LAG_RECORDS, lag.records, *labels)
            sheet.tell(catalogue.LAG_BYTES, lag.bytes, *labels)
            if lag.ms != NOT_KNOWN:
                sheet.tell(catalogue.LAG_SECONDS, lag.ms / 1000, *labels)
            told += pair.behind_ms > LAGGING_AFTER_MS
            yield
        lagging = sum(figures.lagging for figures in self.followers.values())
        sheet.tell(catalogue.PARTITIONS_WITHOUT_SERIES, lagging - told)

    def _tell_followers(self, sheet: Sheet) -> Iterator[None]:
        for follower, figures in sorted(self.followers.items()):
            label = str(follower)
            sheet.tell(catalogue.FOLLOWER_LAG_RECORDS, figures.lag_records, label)
            sheet.tell(catalogue.FOLLOWER_LAG_BYTES, figures.lag_bytes, label)
            sheet.tell(catalogue.FOLLOWER_LAGGING_PARTITIONS, figures.lagging, label)
            sheet.tell(catalogue.FOLLOWER_OUT_OF_ISR, figures.out_of_isr, label)
            age_ms = figures.fetched_ms if figures.fetched_ms != NOT_KNOWN else figures.granted_ms
            sheet.tell(catalogue.FOLLOWER_FETCH_AGE, max(0, age_ms) / 1000, label)
            yield from self._find_oldest(figures)
            sheet.tell(catalogue.FOLLOWER_MAX_LAG_SECONDS, figures.max_lag_ms / 1000, label)

    def _find_oldest(self, figures: FollowerFigures) -> Iterator[None]:
        """`max_lag_ms` is better after each look, and exact after the last, unless very many
        would have to be looked at."""
        known = [pair for pair in figures.behind if pair.end != NO_OFFSET]
        for pair in nlargest(MAX_AGES_READ_PER_FOLLOWER, known, key=lambda p: p.behind_ms):
            if pair.behind_ms <= figures.max_lag_ms:
                return
            figures.max_lag_ms = max(figures.max_lag_ms, self._lag_of(pair).ms)
            yield

    def _lag_of(self, pair: Pair) -> Lag:
        return lag_of(pair.partition.log, pair.end, self._wall_ms)
