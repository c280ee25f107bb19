"""Collects a broker's metrics for a scrape, on its event loop and in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.metrics.replica_metrics import ReplicaMetrics
from tidelog_broker.metrics.vitals import BrokerVitals
from tidelog_broker.storage.disk_use import UNKNOWN_DISK
from tidelog_runtime.clock import Clock
from tidelog_runtime.telemetry.metrics import broker_catalogue as catalogue
from tidelog_runtime.telemetry.metrics import scrub_catalogue
from tidelog_runtime.telemetry.metrics.service_catalogue import QUEUE_DEPTH
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot

# The event loop runs after each slice, which takes about a millisecond.
PARTITIONS_PER_TURN = 256
READS_PER_TURN = 16


class Replicas(Protocol):
    def all(self) -> Iterable[Partition]: ...


class BrokerCollector:
    def __init__(self, replicas: Replicas, vitals: BrokerVitals, clock: Clock) -> None:
        self._replicas = replicas
        self._vitals = vitals
        self._clock = clock

    async def collect(self, snapshot: MetricsSnapshot) -> None:
        vitals = self._vitals
        figures = ReplicaMetrics(self._clock.monotonic_ms(), self._clock.wall_ms(), vitals.checks)
        for position, partition in enumerate(list(self._replicas.all())):
            if position % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            figures.add(partition)
        for position, _ in enumerate(figures.write_to(snapshot)):
            if position % READS_PER_TURN == 0:
                await asyncio.sleep(0)
        snapshot.set(catalogue.REGISTERED, vitals.registered())
        snapshot.set(catalogue.HAS_FULL_STATE, vitals.has_full_state())
        directory = vitals.directory()
        snapshot.set(catalogue.DIRECTORY_INTACT, directory.is_intact)
        snapshot.set(catalogue.WAITS_FOR_BROKER_ID, directory.is_waiting)
        crowded_out = vitals.crowded_out()
        snapshot.set(catalogue.EVICTED_PRODUCERS, crowded_out.recent, catalogue.RECENT_WRITE)
        snapshot.set(catalogue.EVICTED_PRODUCERS, crowded_out.older, catalogue.OLDER_WRITE)
        snapshot.set(catalogue.DAMAGED_BATCHES, vitals.damaged_batches())
        digests = vitals.digests()
        snapshot.set(catalogue.DIGESTS_COMPARED, digests.compared)
        snapshot.set(catalogue.DIGESTS_NOT_COMPARED, digests.not_compared)
        snapshot.set(catalogue.DIVERGENCES_FOUND, digests.found)
        snapshot.set(catalogue.DIVERGED_RANGES, digests.standing)
        scrub = vitals.scrub()
        snapshot.set(scrub_catalogue.SCRUB_BYTES, scrub.bytes_checked)
        snapshot.set(scrub_catalogue.SCRUB_PASSES, scrub.passes)
        snapshot.set(scrub_catalogue.SCRUB_LAST_PASS, scrub.last_pass_ended_ms / 1000)
        snapshot.set(scrub_catalogue.SCRUB_DAMAGE, scrub.damage_found)
        delay = vitals.scrub_delay()
        overdue_ms = max(delay.expected_ms - delay.period_ms, 1_000) if delay is not None else 0
        snapshot.set(scrub_catalogue.SCRUB_OVERDUE, overdue_ms / 1000)
        snapshot.set(catalogue.PRODUCER_NAMES, vitals.producer_names())
        for follower, sent in sorted(vitals.move_sent_bytes.items()):
            snapshot.set(catalogue.MOVE_SENT_BYTES, sent, str(follower))
        for broker_id, skew_ms in vitals.clock_skews_ms().items():
            snapshot.set(catalogue.CLOCK_SKEW, skew_ms / 1000, str(broker_id))
        snapshot.set(catalogue.RETENTION_PAUSED, vitals.retention_paused_ms() / 1000)
        disk = await vitals.disk_use()
        if disk != UNKNOWN_DISK:
            snapshot.set(catalogue.DISK_FREE, disk.free_bytes)
            snapshot.set(catalogue.DISK_SIZE, disk.size_bytes)
        for queue, depth in vitals.queues.items():
            snapshot.set(QUEUE_DEPTH, depth(), queue)
