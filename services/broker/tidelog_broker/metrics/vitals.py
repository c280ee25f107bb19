"""Metrics of a broker other than those of its replicas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sized
from typing import NamedTuple

from tidelog_broker.clock_check import ClockCheck
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.producer_state import CrowdedOut
from tidelog_broker.core.waiting_consumers import WaitingConsumers
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.metrics.replica_metrics import HighWatermarkChecks
from tidelog_broker.replicas.high_watermark_events import HighWatermarkEvents
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_broker.storage.disk_use import DiskUse
from tidelog_broker.storage.scrub_pace import ScrubDelay
from tidelog_broker.storage.scrub_state import ScrubState
from tidelog_runtime.clock import Clock


class DigestCounts(NamedTuple):
    """Ranges whose digests are compared with those of followers, since the start.

    - `compared`: ranges that were compared.
    - `not_compared`: ranges that could not be compared.
    - `found`: ranges in which replicas were found to differ.
    - `standing`: those of them that differ now.
    """

    compared: int = 0
    not_compared: int = 0
    found: int = 0
    standing: int = 0


class DirectoryState(NamedTuple):
    """The state of the data directory.

    - `is_intact`: nothing shows that it lacks data that was acknowledged under the broker's id.
    - `is_waiting`: another process of the id is registered.
    """

    is_intact: bool = True
    is_waiting: bool = False


class BrokerVitals(NamedTuple):
    """Sources of the broker's metrics.

    - `queues`: depths, by the names in QUEUES.
    - `move_sent_bytes`: by follower; only grows.
    - `clock_skews_ms`: by broker that was heard recently.
    """

    registered: Callable[[], bool]
    has_full_state: Callable[[], bool]
    queues: Mapping[str, Callable[[], int]]
    checks: HighWatermarkChecks
    disk_use: Callable[[], Awaitable[DiskUse]]
    crowded_out: Callable[[], CrowdedOut]
    producer_names: Callable[[], int]
    move_sent_bytes: Mapping[int, int]
    damaged_batches: Callable[[], int]
    scrub: Callable[[], ScrubState]
    scrub_delay: Callable[[], ScrubDelay | None] = lambda: None
    digests: Callable[[], DigestCounts] = DigestCounts
    clock_skews_ms: Callable[[], Mapping[int, int]] = dict
    retention_paused_ms: Callable[[], int] = int
    directory: Callable[[], DirectoryState] = DirectoryState


def broker_vitals(
    manager: ReplicaManager,
    cache: MetadataCache,
    purgatory: Purgatory,
    isr_updates: Sized,
    log_syncer: Sized,
    checks: HighWatermarkChecks,
    disk_use: Callable[[], Awaitable[DiskUse]],
    crowded_out: Callable[[], CrowdedOut],
    move_sent_bytes: Mapping[int, int],
    damaged_batches: Callable[[], int],
    digests: Callable[[], DigestCounts],
    scrub: Callable[[], ScrubState],
    scrub_delay: Callable[[], ScrubDelay | None],
    clock_check: ClockCheck,
    clock: Clock,
    directory: Callable[[], DirectoryState],
) -> BrokerVitals:
    return BrokerVitals(
        registered=lambda: manager.broker_id in cache.brokers,
        has_full_state=manager.has_full_state.is_set,
        queues={
            "produces": lambda: purgatory.waiting_produces,
            "fetched_partitions": lambda: purgatory.awaited_partitions,
            "isr_updates": isr_updates.__len__,
            "log_syncs": log_syncer.__len__,
        },
        checks=checks,
        disk_use=disk_use,
        crowded_out=crowded_out,
        producer_names=lambda: len(cache.producer_names),
        move_sent_bytes=move_sent_bytes,
        damaged_batches=damaged_batches,
        digests=digests,
        scrub=scrub,
        scrub_delay=scrub_delay,
        clock_skews_ms=lambda: clock_check.skews_ms(clock.wall_ms(), clock.monotonic_ms()),
        retention_paused_ms=lambda: (
            clock.monotonic_ms() - clock_check.doubt.since_ms if clock_check.doubt else 0
        ),
        directory=directory,
    )


class HighWatermarkStalled:
    """Whether a high watermark has been stalled for this long while records wait."""

    def __init__(self, watch: HighWatermarkEvents, clock: Clock, stalled_after_ms: int) -> None:
        self._watch = watch
        self._clock = clock
        self._stalled_after_ms = stalled_after_ms

    def __call__(self, partition: Partition) -> bool:
        waiting_ms = self._watch.waiting_ms(partition, self._clock.monotonic_ms())
        return waiting_ms is not None and waiting_ms >= self._stalled_after_ms


class ConsumerWaiting:
    """Whether a consumer recently got nothing because its record is not committed."""

    def __init__(self, waiting: WaitingConsumers, clock: Clock) -> None:
        self._waiting = waiting
        self._clock = clock

    def __call__(self, partition: Partition) -> bool:
        now_ms = self._clock.monotonic_ms()
        return bool(self._waiting.of(partition.name, partition.high_watermark, now_ms))
