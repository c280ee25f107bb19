"""Collects a broker's metrics for a scrape, on its event loop and in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.metrics.replica_figures import ReplicaFigures
from tidelog_broker.metrics.vitals import BrokerVitals
from tidelog_broker.storage.disk_use import UNKNOWN_DISK
from tidelog_runtime.clock import Clock
from tidelog_runtime.telemetry.metrics import broker_catalogue as catalogue
from tidelog_runtime.telemetry.metrics.service_catalogue import QUEUE_DEPTH
from tidelog_runtime.telemetry.metrics.sheet import Sheet

# The event loop runs after each slice, which takes about a millisecond.
PARTITIONS_PER_TURN = 256
LOOKS_PER_TURN = 16


class Replicas(Protocol):
    def all(self) -> Iterable[Partition]: ...


class BrokerCollector:
    def __init__(self, replicas: Replicas, vitals: BrokerVitals, clock: Clock) -> None:
        self._replicas = replicas
        self._vitals = vitals
        self._clock = clock

    async def collect(self, sheet: Sheet) -> None:
        vitals = self._vitals
        figures = ReplicaFigures(self._clock.monotonic_ms(), self._clock.wall_ms(), vitals.judges)
        for position, partition in enumerate(list(self._replicas.all())):
            if position % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            figures.add(partition)
        for position, _ in enumerate(figures.tell(sheet)):
            if position % LOOKS_PER_TURN == 0:
                await asyncio.sleep(0)
        sheet.tell(catalogue.REGISTERED, vitals.registered())
        sheet.tell(catalogue.HAS_FULL_STATE, vitals.has_full_state())
        directory = vitals.directory()
        sheet.tell(catalogue.DIRECTORY_INTACT, directory.is_intact)
        sheet.tell(catalogue.WAITS_FOR_BROKER_ID, directory.is_waiting)
        crowded_out = vitals.crowded_out()
        sheet.tell(catalogue.CROWDED_OUT, crowded_out.recent, catalogue.RECENT_WRITE)
        sheet.tell(catalogue.CROWDED_OUT, crowded_out.older, catalogue.OLDER_WRITE)
        sheet.tell(catalogue.DAMAGED_BATCHES, vitals.damaged_batches())
        digests = vitals.digests()
        sheet.tell(catalogue.DIGESTS_COMPARED, digests.compared)
        sheet.tell(catalogue.DIGESTS_NOT_COMPARED, digests.not_compared)
        sheet.tell(catalogue.DIVERGENCES_FOUND, digests.found)
        sheet.tell(catalogue.DIVERGED_RANGES, digests.standing)
        scrub = vitals.scrub()
        sheet.tell(catalogue.SCRUB_BYTES, scrub.bytes_checked)
        sheet.tell(catalogue.SCRUB_PASSES, scrub.passes)
        sheet.tell(catalogue.SCRUB_LAST_PASS, scrub.last_pass_ended_ms / 1000)
        sheet.tell(catalogue.SCRUB_DAMAGE, scrub.damage_found)
        sheet.tell(catalogue.PRODUCER_NAMES, vitals.producer_names())
        for follower, sent in sorted(vitals.move_sent_bytes.items()):
            sheet.tell(catalogue.MOVE_SENT_BYTES, sent, str(follower))
        for broker_id, skew_ms in vitals.clock_skews_ms().items():
            sheet.tell(catalogue.CLOCK_SKEW, skew_ms / 1000, str(broker_id))
        sheet.tell(catalogue.RETENTION_PAUSED, vitals.retention_paused_ms() / 1000)
        disk = await vitals.disk_use()
        if disk != UNKNOWN_DISK:
            sheet.tell(catalogue.DISK_FREE, disk.free_bytes)
            sheet.tell(catalogue.DISK_SIZE, disk.size_bytes)
        for queue, depth in vitals.queues.items():
            sheet.tell(QUEUE_DEPTH, depth(), queue)
