"""Takes the samples of the history.

The numbers of unhealthy partitions are those of the overview. Offsets and sizes are not in the
overview: each sample requests the replicas of every broker once. This is the most that a sample
costs, so the time between samples grows with the number of replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog.client.descriptions import ClusterDescription, TopicDescription
from tidelog.inspection.state_reports import ServiceState
from tidelog.inspection.topic_sizes import ReplicaReports
from tidelog_admin_api.bodies.cluster_bodies import PartitionCounts
from tidelog_admin_api.history import History, Sample
from tidelog_admin_api.history_figures import FiguresByTopic, Reported, SampledFigures, figures_of
from tidelog_runtime.clock import Clock

SAMPLE_INTERVAL_MS = 2_000
# A broker needs about 0.1 ms to describe a replica. So it spends a tenth of its time at most, and
# with replicas on several brokers less.
REPLICAS_PER_MS = 1
MAX_SAMPLE_INTERVAL_MS = 60_000
# A broker that has not described its replicas by then is not known in the sample.
BROKER_TIMEOUT_MS = 3_000
# A sample that is later than this has a gap before it.
LATE_MS = 4_000
# Lists do not show figures that are older.
MAX_FIGURES_AGE_MS = 90_000


class ReadsReplicas(Protocol):
    """Describes the replicas of the brokers at these addresses; those that do not answer are left
    out."""

    async def __call__(
        self, addresses: Sequence[str], timeout_ms: int
    ) -> Sequence[ServiceState]: ...


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the overview knows. `counts`: None if it is not known now."""

    cluster: ClusterDescription
    topics: Sequence[TopicDescription]
    counts: PartitionCounts | None


class HistorySampler:
    """Adds samples to the history, and keeps the figures of the last one."""

    def __init__(self, read_replicas: ReadsReplicas, clock: Clock) -> None:
        self.history = History()
        self.latest = FiguresByTopic()
        self.interval_ms = SAMPLE_INTERVAL_MS
        self._read_replicas = read_replicas
        self._clock = clock
        self._before: Reported | None = None
        self._taken_ms = 0
        self._worst: PartitionCounts | None = None

    def note(self, counts: PartitionCounts) -> None:
        """Notes counts between two samples: a short failure has to be in the next one."""
        self._worst = _worst_of(self._worst, counts)

    async def take(self, facts: ClusterFacts, expected_ms: int) -> None:
        """Takes a sample. `expected_ms`: the planned time since the sample before."""
        addresses = [b.address for b in facts.cluster.brokers if b.status != "gone" and b.address]
        counts = facts.counts and _worst_of(self._worst, facts.counts)
        self._worst = None
        states = await self._read_replicas(addresses, BROKER_TIMEOUT_MS)
        now_ms, at_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        follows = self._before is not None and now_ms - self._taken_ms <= expected_ms + LATE_MS
        before = self._before if follows else None
        # In a thread, because thousands of replicas would block the event loop.
        reported, figures = await asyncio.to_thread(
            self._add, before, facts.topics, counts, states, at_ms
        )
        self._before, self._taken_ms = reported, now_ms
        self.latest = FiguresByTopic(at_ms, figures.sizes, figures.rates)
        replicas = sum(len(state.broker.replicas) for state in states if state.broker)
        self.interval_ms = min(
            max(SAMPLE_INTERVAL_MS, replicas // REPLICAS_PER_MS), MAX_SAMPLE_INTERVAL_MS
        )

    def _add(
        self,
        before: Reported | None,
        topics: Sequence[TopicDescription],
        counts: PartitionCounts | None,
        states: Sequence[ServiceState],
        at_ms: int,
    ) -> tuple[Reported, SampledFigures]:
        reported = Reported(topics, counts, states, ReplicaReports(states))
        figures = figures_of(before, reported)
        self.history.add(Sample(at_ms, before is not None, figures.figures, figures.lags))
        return reported, figures

    def figures_of_topics(self) -> FiguresByTopic:
        """Returns the sizes and rates of topics in the last sample, or nothing if it is old."""
        age_ms = self._clock.wall_ms() - self.latest.as_of_ms
        return self.latest if age_ms <= MAX_FIGURES_AGE_MS else FiguresByTopic()


def _worst_of(one: PartitionCounts | None, other: PartitionCounts) -> PartitionCounts:
    if one is None:
        return other
    return PartitionCounts(**{k: max(v, getattr(one, k)) for k, v in dict(other).items()})
