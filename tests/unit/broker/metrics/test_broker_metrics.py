"""A complete scrape of a broker stays within its bounds with very many partitions, and does not
block the event loop.
"""

from __future__ import annotations

import asyncio

import pytest

from doubles.memory_store import MemoryStore
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.producer_state import CrowdedOut
from tidelog_broker.metrics.broker_metrics import BrokerMetrics
from tidelog_broker.metrics.collector import PARTITIONS_PER_TURN, BrokerCollector
from tidelog_broker.metrics.replica_metrics import HighWatermarkChecks
from tidelog_broker.metrics.vitals import BrokerVitals, DirectoryState
from tidelog_broker.storage.disk_use import DiskUse
from tidelog_broker.storage.scrub_state import ScrubState
from tidelog_runtime.metadata.measured_store import MeasuredStore
from tidelog_runtime.metadata.store import KeyValue, StoreUnavailableError
from tidelog_runtime.telemetry.metrics.broker_catalogue import BROKER_METRICS, QUEUES
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from unit.broker.fake_log import state
from unit.broker.log.builders import FakeClock
from unit.broker.metrics.test_replica_metrics import fetch, replica
from unit.metrics.test_catalogue import LIBRARY_SERIES, MAX_BROKER_SERIES

MANY = 10_000


class AwayStore(MemoryStore):
    async def get(self, key: str) -> KeyValue | None:
        raise StoreUnavailableError(f"no store answers about {key}")


class MeasuredBroker:
    def __init__(self, *partitions: Partition, store: type[MemoryStore] = MemoryStore) -> None:
        self.clock = clock = FakeClock()
        self.state_changes = StateChangeLog("broker-1", clock)
        self.store = MeasuredStore(store(clock), "key", clock, self.state_changes)
        self.metrics = BrokerMetrics(self.state_changes, lambda: 0.0)
        self.metrics.watch(self.store)
        self._partitions = partitions
        queues = {queue: lambda: 7 for queue in QUEUES}
        checks = HighWatermarkChecks(lambda _: True, lambda _: True)
        vitals = BrokerVitals(
            lambda: True,
            lambda: False,
            queues,
            checks,
            self._disk,
            lambda: CrowdedOut(3, 4),
            lambda: 12,
            {4: 900},
            lambda: 6,
            lambda: ScrubState(bytes_checked=70, passes=2, last_pass_ended_ms=5_000),
            directory=lambda: DirectoryState(is_intact=False, is_waiting=True),
        )
        self.collector = BrokerCollector(self, vitals, clock)

    def all(self) -> tuple[Partition, ...]:
        return self._partitions

    def has_topic(self, topic: str) -> bool:  # noqa: ARG002 - all of them are there
        return True

    async def _disk(self) -> DiskUse:
        return DiskUse(5, 10)

    async def scrape(self) -> MetricsSnapshot:
        snapshot = MetricsSnapshot(BROKER_METRICS)
        await self.metrics.collect(self, snapshot)
        snapshot.begin()
        return snapshot


def series_count(snapshot: MetricsSnapshot) -> int:
    """A histogram has one series for each bucket, and +Inf, _sum and _count."""
    scalars = sum(len(series) for series in snapshot.values.values())
    return scalars + sum(
        len(distribution.bounds) + 3
        for series in snapshot.distributions.values()
        for distribution in series.values()
    )


async def test_ten_thousand_unhealthy_partitions_in_busy_topics_stay_within_the_bound() -> None:
    partitions = [replica(n, state(isr=(1,)), records=3, topic=f"t{n % 500}") for n in range(MANY)]
    for partition in partitions:
        for follower in (2, 3):
            fetch(partition, follower, 1, now_ms=2_000)
    broker = MeasuredBroker(*partitions)
    for partition in partitions:
        broker.metrics.requests.topic(partition.name.topic)

    snapshot = await broker.scrape()

    assert series_count(snapshot) + LIBRARY_SERIES <= MAX_BROKER_SERIES
    assert snapshot.left_out == 0


async def test_evicted_producers_are_counted_by_the_time_since_their_last_write() -> None:
    snapshot = await MeasuredBroker().scrape()
    counted = snapshot.values["tidelog_crowded_out_producers_total"]
    assert counted == {("recent",): 3, ("older",): 4}


async def test_the_number_of_producer_names_is_exported() -> None:
    snapshot = await MeasuredBroker().scrape()
    assert snapshot.values["tidelog_named_producers"] == {(): 12}


async def test_the_event_loop_runs_after_every_slice_of_partitions() -> None:
    broker = MeasuredBroker(*(replica(n) for n in range(8 * PARTITIONS_PER_TURN)))
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    await broker.scrape()
    other.cancel()

    assert turns >= 8


async def test_metrics_beyond_the_replicas_are_exported() -> None:
    snapshot = await MeasuredBroker().scrape()

    assert snapshot.values["tidelog_broker_registered"] == {(): 1}
    assert snapshot.values["tidelog_broker_has_full_state"] == {(): 0}
    assert snapshot.values["tidelog_data_directory_intact"] == {(): 0}
    assert snapshot.values["tidelog_waits_for_broker_id"] == {(): 1}
    assert snapshot.values["tidelog_disk_free_bytes"] == {(): 5}
    assert snapshot.values["tidelog_disk_size_bytes"] == {(): 10}
    assert snapshot.values["tidelog_queue_depth"] == {(queue,): 7 for queue in QUEUES}


async def test_store_latency_is_exported_by_operation() -> None:
    broker = MeasuredBroker()
    await broker.store.get("key")

    snapshot = await broker.scrape()

    durations = snapshot.distributions["tidelog_store_request_duration_seconds"]
    counts = {operation: sum(series.counts) for (operation,), series in durations.items()}
    assert counts == {"get": 1, "snapshot": 0, "transact": 0, "grant_lease": 0}
    assert snapshot.values["tidelog_store_unreachable_seconds"] == {(): 0}
    assert not any(snapshot.values["tidelog_store_errors_total"].values())


async def test_a_store_that_does_not_answer_is_an_error_and_unreachable_from_then_on() -> None:
    broker = MeasuredBroker(store=AwayStore)
    with pytest.raises(StoreUnavailableError):
        await broker.store.get("key")
    broker.clock.now_ms += 4_000

    snapshot = await broker.scrape()

    assert snapshot.values["tidelog_store_errors_total"]["get",] == 1
    assert snapshot.values["tidelog_store_unreachable_seconds"] == {(): 4}
    assert not sum(snapshot.distributions["tidelog_store_request_duration_seconds"]["get",].counts)


async def test_the_bytes_of_moves_to_each_follower_are_exported() -> None:
    snapshot = await MeasuredBroker().scrape()
    assert snapshot.values["tidelog_move_sent_bytes_total"] == {("4",): 900}
