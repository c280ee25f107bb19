"""Metrics of all replicas of a broker: sums, and the few that are reported one by one.

Pure, except that the age of what the worst followers lack is read from the disk.

A follower that has not fetched in this leader epoch lacks at least what was written since the epoch
began. That is counted, even if it lacks more.

The lag of a follower in seconds needs a read of the log. The time since it was last known to be
caught up needs none, and is exact enough to choose the followers whose lag is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappush, heapreplace, nlargest
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from tidelog.inspection.state_reports import NOT_KNOWN
from tidelog.model import NO_LEADER, NO_OFFSET
from tidelog_broker.core.partition.isr import FollowerProgress
from tidelog_broker.core.partition.lag import Lag, lag_of, unreported_end
from tidelog_broker.core.partition.leader_state import LeaderState
from tidelog_broker.core.partition.partition import Partition
from tidelog_runtime.metadata.schema import LeaderAndIsr
from tidelog_runtime.telemetry.metrics import broker_catalogue as catalogue
from tidelog_runtime.telemetry.metrics.broker_catalogue import (
    MAX_LAG_SERIES,
    MAX_PARTITION_SERIES,
    MAX_TOPIC_SERIES,
)
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot

# A follower that was caught up more recently than this does not count as lagging.
LAGGING_AFTER_MS = 1_000
# Partitions of one follower that are read to find the oldest record that it lacks. These are the
# ones in which it was caught up the longest ago.
MAX_AGES_READ_PER_FOLLOWER = 20


_Item = TypeVar("_Item")


class Largest(Generic[_Item]):
    """Keeps the `most` items with the largest keys; of equal keys the first.

    Only kept items cost memory and time: a scrape of ten thousand partitions creates no ten
    thousand objects.
    """

    __slots__ = ("_heap", "_most", "_ties")

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[int, int, _Item]] = []
        self._ties = count(0, -1)

    def would_keep(self, key: int) -> bool:
        """Whether an item with that key would be kept now."""
        return len(self._heap) < self._most or key > self._heap[0][0]

    def add(self, key: int, item: _Item) -> None:
        entry = (key, next(self._ties), item)
        if len(self._heap) < self._most:
            heappush(self._heap, entry)
        else:
            heapreplace(self._heap, entry)

    def descending(self) -> list[tuple[int, _Item]]:
        return [(key, item) for key, _, item in sorted(self._heap, reverse=True)]


class HighWatermarkChecks(NamedTuple):
    """Whether a high watermark is stalled, and whether a consumer waits for it to move."""

    is_stalled: Callable[[Partition], bool]
    is_waited_for: Callable[[Partition], bool]


class FollowerOfPartition(NamedTuple):
    """A follower of a partition that is led here, and the offset from which on it lacks records."""

    partition: Partition
    follower: int
    end: int


class FollowerMetrics:
    """One follower over all partitions that are led here.

    - `fetched_at_ms`: its last fetch in any of them.
    - `granted_at_ms`: the earliest start of an epoch in which it has not fetched yet; NOT_KNOWN:
      none.
    - `behind`: partitions in which it lacks records, by how long that may be.
    """

    __slots__ = (
        *("behind", "fetched_at_ms", "granted_at_ms", "lag_bytes", "lag_records"),
        *("lagging", "max_lag_ms", "out_of_isr"),
        *("adding", "adding_bytes"),
    )

    def __init__(self) -> None:
        self.lag_records = 0
        self.lag_bytes = 0
        self.lagging = 0
        self.out_of_isr = 0
        self.adding = 0
        self.adding_bytes = 0
        self.max_lag_ms = 0
        self.fetched_at_ms = NOT_KNOWN
        self.granted_at_ms = NOT_KNOWN
        self.behind: Largest[FollowerOfPartition] = Largest(MAX_AGES_READ_PER_FOLLOWER)

    def add_fetch(self, progress: FollowerProgress) -> None:
        at_ms, session = progress.last_fetch_ms, progress.session
        if session is not None and session.last_request_ms > at_ms:
            at_ms = session.last_request_ms
        if at_ms > self.fetched_at_ms:
            self.fetched_at_ms = at_ms

    def add_grant(self, progress: FollowerProgress) -> None:
        """Adds an epoch in which the follower has not fetched."""
        at_ms = progress.last_fetch_ms
        if self.granted_at_ms == NOT_KNOWN or at_ms < self.granted_at_ms:
            self.granted_at_ms = at_ms


class ReplicaMetrics:
    """Metrics of all replicas: `add` each replica, then `write_to`.

    `checks` are called for led partitions with records above their high watermark.
    """

    def __init__(self, now_ms: int, wall_ms: int, checks: HighWatermarkChecks) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._judges = checks
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
        self.followers: dict[int, FollowerMetrics] = {}
        self._topic_bytes: dict[str, int] = {}
        self._largest: Largest[Partition] = Largest(MAX_PARTITION_SERIES)
        self._worst: Largest[FollowerOfPartition] = Largest(MAX_LAG_SERIES)
        # Followers that lack nothing, at most as many as there may be series.
        self._caught_up: list[FollowerOfPartition] = []

    # -- adding up -------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        log, topic = partition.log, partition.name.topic
        size, end = log.size_bytes, log.log_end_offset
        self.replicas += 1
        self.size_bytes += size
        self.segments += log.segment_count
        self.unflushed_records += end - log.flushed_offset
        self._topic_bytes[topic] = self._topic_bytes.get(topic, 0) + size
        if self._largest.would_keep(size):
            self._largest.add(size, partition)
        state, leading = partition.state, partition.leading
        if not partition.in_service:
            self.out_of_service += 1
        elif state is None or state.leader == NO_LEADER:
            self.leaderless += 1
        elif leading is not None:
            self._add_led(partition, state, leading, end)

    def _add_led(
        self, partition: Partition, state: LeaderAndIsr, leading: LeaderState, end: int
    ) -> None:
        self.leaders += 1
        isr = [member.broker_id for member in state.isr]
        # Replicas that a move adds are not missing before the move has switched.
        if len(isr) < len(state.settled_replicas):
            self.under_replicated += 1
            if len(isr) < state.min_isr:
                self.under_min_isr += 1
            elif len(isr) == state.min_isr:
                self.at_min_isr += 1
        if partition.high_watermark < end:
            self.uncommitted_records += end - partition.high_watermark
            self.hw_stalled += self._judges.is_stalled(partition)
            self.waited_for += self._judges.is_waited_for(partition)
        self._add_followers(partition, leading, isr, end)
        if state.moving is not None:
            self._add_adding(partition)

    def _add_adding(self, partition: Partition) -> None:
        for follower, lacking in partition.bytes_lacking():
            if partition.is_added_out_of_sync(follower):
                metrics = self._follower_metrics(follower)
                metrics.adding += 1
                metrics.adding_bytes += lacking

    def _follower_metrics(self, follower: int) -> FollowerMetrics:
        metrics = self.followers.get(follower)
        if metrics is None:
            metrics = self.followers[follower] = FollowerMetrics()
        return metrics

    def _add_followers(
        self, partition: Partition, leading: LeaderState, isr: list[int], end: int
    ) -> None:
        for follower, progress in leading.followers.items():
            metrics = self._follower_metrics(follower)
            in_isr = follower in isr
            if not in_isr:
                metrics.out_of_isr += 1
            behind_ms = self._now_ms - progress.last_caught_up_ms
            start, has_fetched = progress.log_end_offset, progress.log_end_offset != NO_OFFSET
            if has_fetched:
                metrics.add_fetch(progress)
            else:
                # Its log is not known, except that it lacks what was written since the epoch began.
                # So the previous leader lags too if it died.
                metrics.add_grant(progress)
                start = unreported_end(leading.epoch_start, partition.high_watermark, in_isr=in_isr)
            if start < end:
                metrics.lag_records += end - start
                metrics.lag_bytes += partition.log.bytes_from(start)
                metrics.lagging += behind_ms > LAGGING_AFTER_MS
                if self._worst.would_keep(behind_ms):
                    self._worst.add(behind_ms, FollowerOfPartition(partition, follower, start))
                if metrics.behind.would_keep(behind_ms):
                    metrics.behind.add(behind_ms, FollowerOfPartition(partition, follower, start))
            elif not has_fetched:
                metrics.lagging += behind_ms > LAGGING_AFTER_MS
            elif len(self._caught_up) < MAX_LAG_SERIES:
                self._caught_up.append(FollowerOfPartition(partition, follower, end))

    # -- reporting ---------------------------------------------------------------------

    def write_to(self, snapshot: MetricsSnapshot) -> Iterator[None]:
        """Writes the metrics to `snapshot`. Yields now and then, so that the event loop can run."""
        self._write_totals(snapshot)
        self._write_sizes(snapshot)
        yield
        yield from self._write_worst(snapshot)
        yield from self._write_followers(snapshot)

    def _write_totals(self, snapshot: MetricsSnapshot) -> None:
        snapshot.set(catalogue.REPLICAS, self.replicas)
        snapshot.set(catalogue.LEADERS, self.leaders)
        snapshot.set(catalogue.LEADERLESS, self.leaderless)
        snapshot.set(catalogue.OUT_OF_SERVICE, self.out_of_service)
        snapshot.set(catalogue.UNDER_REPLICATED, self.under_replicated)
        snapshot.set(catalogue.UNDER_MIN_ISR, self.under_min_isr)
        snapshot.set(catalogue.AT_MIN_ISR, self.at_min_isr)
        snapshot.set(catalogue.HW_STALLED, self.hw_stalled)
        snapshot.set(catalogue.UNCOMMITTED_RECORDS, self.uncommitted_records)
        snapshot.set(catalogue.WAITING_CONSUMERS, self.waited_for)
        snapshot.set(catalogue.LOG_SIZE, self.size_bytes)
        snapshot.set(catalogue.LOG_SEGMENTS, self.segments)
        snapshot.set(catalogue.UNFLUSHED_RECORDS, self.unflushed_records)

    def _write_sizes(self, snapshot: MetricsSnapshot) -> None:
        largest = nlargest(MAX_TOPIC_SERIES, ((b, t) for t, b in self._topic_bytes.items()))
        for size, topic in largest:
            snapshot.set(catalogue.TOPIC_LOG_SIZE, size, topic)
        for size, partition in self._largest.descending():
            topic, number = partition.name
            snapshot.set(catalogue.PARTITION_LOG_SIZE, size, topic, str(number))

    def _write_worst(self, snapshot: MetricsSnapshot) -> Iterator[None]:
        """Writes one series for each of the pairs that lag most.

        If there is room, pairs that lack nothing get one too, so that a graph exists before it is
        needed.
        """
        shown = 0
        worst = self._worst.descending()
        for behind_ms, pair in [*worst, *((0, pair) for pair in self._caught_up)][:MAX_LAG_SERIES]:
            lag = self._lag_of(pair)
            topic, number = pair.partition.name
            labels = (topic, str(number), str(pair.follower))
            snapshot.set(catalogue.LAG_RECORDS, lag.records, *labels)
            snapshot.set(catalogue.LAG_BYTES, lag.bytes, *labels)
            if lag.ms != NOT_KNOWN:
                snapshot.set(catalogue.LAG_SECONDS, lag.ms / 1000, *labels)
            shown += behind_ms > LAGGING_AFTER_MS
            yield
        lagging = sum(figures.lagging for figures in self.followers.values())
        snapshot.set(catalogue.PARTITIONS_WITHOUT_SERIES, lagging - shown)

    def _write_followers(self, snapshot: MetricsSnapshot) -> Iterator[None]:
        for follower, figures in sorted(self.followers.items()):
            label = str(follower)
            snapshot.set(catalogue.FOLLOWER_LAG_RECORDS, figures.lag_records, label)
            snapshot.set(catalogue.FOLLOWER_LAG_BYTES, figures.lag_bytes, label)
            snapshot.set(catalogue.FOLLOWER_LAGGING_PARTITIONS, figures.lagging, label)
            snapshot.set(catalogue.FOLLOWER_OUT_OF_ISR, figures.out_of_isr, label)
            if figures.adding:
                snapshot.set(catalogue.FOLLOWER_ADDING, figures.adding, label)
                snapshot.set(catalogue.FOLLOWER_ADDING_BYTES, figures.adding_bytes, label)
            snapshot.set(catalogue.FOLLOWER_FETCH_AGE, self._fetch_age_ms(figures) / 1000, label)
            for _, pair in figures.behind.descending():
                figures.max_lag_ms = max(figures.max_lag_ms, self._lag_of(pair).ms)
                yield
            snapshot.set(catalogue.FOLLOWER_MAX_LAG_SECONDS, figures.max_lag_ms / 1000, label)

    def _fetch_age_ms(self, metrics: FollowerMetrics) -> int:
        since_ms = metrics.fetched_at_ms
        if since_ms == NOT_KNOWN:
            since_ms = metrics.granted_at_ms
        return max(0, self._now_ms - since_ms)

    def _lag_of(self, pair: FollowerOfPartition) -> Lag:
        return lag_of(pair.partition.log, pair.end, self._wall_ms)
