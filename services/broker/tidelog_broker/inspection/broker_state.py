"""Describes this broker for the Inspect API.

The state is computed on request, in slices between which the event loop runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace

from tidelog.errors import TidelogError, unknown_partition, unknown_topic
from tidelog.inspection.resource_pressures import BrokerPressure
from tidelog.inspection.state_reports import (
    NOT_KNOWN,
    STARTED,
    BrokerState,
    ClockDoubt,
    HeardClock,
    RecentElections,
    RegisteredBroker,
    RegisteredController,
    ReplicaState,
    ServiceState,
    StateRequest,
    StoreHealth,
)
from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.version import installed_version
from tidelog_broker.background import RunBlocking
from tidelog_broker.clock_check import ClockCheck
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.core.rejected_requests import RejectionCounts
from tidelog_broker.core.start_progress import StartProgress
from tidelog_broker.damage.recent_damage import RecentDamage
from tidelog_broker.inspection.replica_knowledge import ReplicaKnowledge
from tidelog_broker.inspection.replica_state import (
    failure_fields,
    is_healthy,
    replica_state,
    unopened_replica,
)
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.requests.key_placements import KeyPlacements
from tidelog_broker.storage.disk_use import UNKNOWN_DISK, DiskUse, ReadDiskUse
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_runtime.clock import Clock
from tidelog_runtime.departed_brokers import departed_brokers
from tidelog_runtime.pressure.process_pauses import ProcessPause
from tidelog_runtime.pressure.records import Pressure
from tidelog_runtime.telemetry.recent_elections import ElectionCounts
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

# The event loop runs after each slice of this many replicas.
REPLICAS_PER_TURN = 32


class BrokerInspection:
    """The broker as `ExplainingService` inspects it.

    The broker sets the public attributes; the composition root sets `own_pressures` and
    `standstills`.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        logs: LogDirectory,
        cache: MetadataCache,
        knowledge: ReplicaKnowledge,
        clock: Clock,
        state_changes: StateChangeLog,
        store_health: Callable[[], StoreHealth],
        read_disk_use: ReadDiskUse,
        run_blocking: RunBlocking,
        start: StartProgress,
        *,
        silent_leaders: Callable[[], Mapping[int, int]],
        rejections: RejectionCounts,
        key_placements: KeyPlacements,
        previous_end: str,
        boot_id: str,
        clock_check: ClockCheck,
    ) -> None:
        self._start = start
        self._manager = manager
        self._logs = logs
        self._cache = cache
        self._knowledge = knowledge
        self._clock = clock
        self._state_changes = state_changes
        self._store_health = store_health
        self._read_disk_use = read_disk_use
        self._run_blocking = run_blocking
        self._started_at_ms = clock.wall_ms()
        self._elections = ElectionCounts(clock)
        state_changes.add_sink(self._elections.take)
        self._damage = RecentDamage(clock)
        state_changes.add_sink(self._damage.take)
        self.address = ""
        self.is_stopping = False
        self.own_pressures: Callable[[], Sequence[Pressure]] = tuple
        self.standstills: Callable[[], Sequence[ProcessPause]] = tuple
        # Leaders that leave fetches without an answer, and for how long, in milliseconds.
        self._silent_leaders = silent_leaders
        self._rejections = rejections
        self._key_placements = key_placements
        self._previous_end = previous_end
        self._boot_id = boot_id
        self._clock_check = clock_check

    async def describe(self, request: StateRequest) -> ServiceState:
        error = self._not_found(request)
        replicas = [replica async for replica in self._replicas(request)]
        disk = await self.disk_use()
        manager, cache = self._manager, self._cache
        starts = not manager.has_full_state.is_set()
        return ServiceState(
            role="broker",
            id=manager.broker_id,
            address=self.address,
            version=installed_version(),
            started_at_ms=self._started_at_ms,
            now_ms=self._clock.wall_ms(),
            store=self._store_health(),
            events_told=self._state_changes.reported,
            events_dropped=self._state_changes.dropped,
            broker=BrokerState(
                broker_epoch=manager.broker_epoch if manager.broker_id in cache.brokers else 0,
                state=self._state(),
                has_full_state=manager.has_full_state.is_set(),
                controller_epoch=manager.controller_epoch,
                registered=self._registered(),
                replicas=replicas,
                replica_count=len(manager.all()),
                leader_count=sum(1 for _ in manager.led()),
                disk_free_bytes=disk.free_bytes,
                move_bytes_per_second=(
                    NOT_KNOWN
                    if cache.throttle.bytes_per_second is None
                    else cache.throttle.bytes_per_second
                ),
                controller_address=cache.controller.address if cache.controller else "",
                controllers=[
                    RegisteredController(controller_id, process.address, process.started_at_ms)
                    for controller_id, process in sorted(cache.controllers.items())
                ],
                departures=list(
                    departed_brokers(
                        cache.departures,
                        cache.brokers,
                        cache.holds_replicas,
                        self._clock.wall_ms(),
                    )
                ),
                missing_controllers=cache.past_controllers.missing(
                    cache.controllers, self._clock.wall_ms()
                ),
                heard=self._knowledge.last_contacts(self._silent_leaders()),
                elections=self._recent_elections(),
                start_phase=self._start.phase if starts else STARTED,
                start_done=self._start.done if starts else 0,
                start_total=self._start.total if starts else 0,
                rejected_starts=cache.directories.described_rejections(),
                pressures=self._pressures(),
                controller_pressures=cache.controller_pressures.described(),
                rejected_requests=(
                    *self._rejections.recent(self._clock.monotonic_ms()),
                    *self._knowledge.outrun_consumers(),
                ),
                sampled_keys=tuple(self._key_placements.recent(self._clock.monotonic_ms())),
                previous_end=self._previous_end,
                boot_id=self._boot_id,
                disk_free_inodes=disk.free_inodes,
                disk_inodes=disk.inodes,
                clocks=self._clocks(),
                clock_doubt=self._clock_doubt(),
                repaired_damage=self._damage.repaired,
            ),
            error=error,
        )

    def _clocks(self) -> list[HeardClock]:
        skews = self._clock_check.skews_ms(self._clock.wall_ms(), self._clock.monotonic_ms())
        return [HeardClock(broker_id, skew_ms) for broker_id, skew_ms in skews.items()]

    def _clock_doubt(self) -> ClockDoubt | None:
        doubt = self._clock_check.doubt
        if doubt is None:
            return None
        for_ms = self._clock.monotonic_ms() - doubt.since_ms
        return ClockDoubt(doubt.reason, doubt.ahead_ms, for_ms)

    def _pressures(self) -> list[BrokerPressure]:
        """Returns pressures of brokers: its own as measured, others as read from the store."""
        own = self._manager.broker_id
        read = self._cache.directories.described_pressures()
        others = [pressure for pressure in read if pressure.broker_id != own]
        return others + [BrokerPressure(own, *pressure) for pressure in self.own_pressures()]

    def _recent_elections(self) -> RecentElections:
        standstills = self.standstills()
        return replace(
            self._elections.recent,
            standstills=len(standstills),
            longest_standstill_ms=max((each.for_ms for each in standstills), default=0),
            last_standstill_ms=min((each.ago_ms for each in standstills), default=NOT_KNOWN),
        )

    def _not_found(self, request: StateRequest) -> TidelogError | None:
        """Returns the error of a request for an unknown topic or partition.

        Returns None before the store was read, and while a replica that the store no longer has is
        still here.
        """
        topic, partition = request.topic, request.partition
        if not topic or not self._cache.revision or self._has_replica(request):
            return None
        live = self._cache.topics.get(topic)
        if live is None:
            return unknown_topic(topic)
        if partition is not None and partition >= live.entry.partitions:
            return unknown_partition(topic, partition, live.entry.partitions)
        return None

    def _has_replica(self, request: StateRequest) -> bool:
        names = map(self._logs.name_of, self._logs.keys())
        return any(name is not None and _is_requested(name, request) for name in names)

    def _state(self) -> str:
        if self.is_stopping:
            return "stopping"
        ready = self._manager.has_full_state.is_set()
        return "running" if ready and self._manager.broker_id in self._cache.brokers else "starting"

    def _registered(self) -> list[RegisteredBroker]:
        return [
            self._cache.directories.describe(broker_id, live.broker_epoch, live.registration)
            for broker_id, live in sorted(self._cache.brokers.items())
        ]

    async def _replicas(self, request: StateRequest) -> AsyncIterator[ReplicaState]:
        """Yields replicas by name.

        Replicas that are created or removed meanwhile may be missing.
        """
        if request.services_only or self._start.opens_logs:
            return
        keys = {self._logs.name_of(key): key for key in self._logs.keys()}  # noqa: SIM118
        names = sorted(name for name in keys if name is not None and _is_requested(name, request))
        for position, name in enumerate(names):
            if position % REPLICAS_PER_TURN == REPLICAS_PER_TURN - 1:
                await asyncio.sleep(0)
            replica = self._replica(name, keys[name])
            known = self._cache.state_of(name)
            key_state = known.state if known is not None else None
            if not (request.only_unwell and is_healthy(replica, key_state)):
                yield replica

        for key, failed in list(self._manager.disk.unopened().items()):
            if key not in self._logs.keys() and _is_requested(failed.name, request):  # noqa: SIM118
                yield unopened_replica(failed, key, self._knowledge.now())

    def _replica(self, name: TopicPartition, key: ReplicaKey) -> ReplicaState:
        partition = self._manager.find(key)
        if partition is not None:
            return replica_state(partition, self._knowledge, self._knowledge.now())
        failure = self._knowledge.failure_of(key)
        log = self._logs.log_of(key)
        # No controller's command has named this replica yet.
        return ReplicaState(
            topic=name.topic,
            topic_id=key.topic_id,
            partition=name.partition,
            role="damaged" if self._logs.is_out_of_service(key) else "none",
            leader_epoch=NO_EPOCH,
            revision=0,
            log_start_offset=log.log_start_offset if log else 0,
            log_end_offset=log.log_end_offset if log else 0,
            high_watermark=self._logs.high_watermark(key),
            flushed_offset=log.flushed_offset if log else 0,
            size_bytes=log.size_bytes if log else 0,
            damaged=self._knowledge.damaged_offsets(key),
            diverged=self._knowledge.diverged_offsets(key),
            **failure_fields(failure, self._knowledge.now()),
        )

    async def disk_use(self) -> DiskUse:
        found = UNKNOWN_DISK

        def look() -> None:
            nonlocal found
            found = self._read_disk_use()

        try:
            await self._run_blocking(look)
        except OSError:
            return UNKNOWN_DISK
        return found


def _is_requested(name: TopicPartition, request: StateRequest) -> bool:
    if request.topic and name.topic != request.topic:
        return False
    return request.partition is None or name.partition == request.partition
