"""Collects from other parts of the broker what a replica does not know about itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidelog.inspection.state_reports import (
    NOT_KNOWN,
    REJECTS_LEADER,
    DamagedOffsets,
    DivergedOffsets,
    FollowerState,
    HeardBroker,
    RejectedRequests,
    WaitingConsumer,
)
from tidelog.model import NO_LEADER
from tidelog_broker.core.fetch_sessions import FollowerStream
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.damage.divergences import Divergences
from tidelog_broker.damage.replica_repair import ReplicaRepair
from tidelog_broker.inspection.replica_state import Clocks, Failure
from tidelog_broker.replicas.high_watermark_events import HighWatermarkEvents
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.replication.fetchers import Fetchers
from tidelog_broker.requests.consumer_fetch import ConsumerFetch
from tidelog_broker.requests.replica_fetch import ReplicaFetch
from tidelog_broker.storage.damaged_batches import DamagedBatches
from tidelog_runtime.clock import Clock

# Damaged ranges that are described for one replica.
MAX_REPORTED_DAMAGED = 20


class ReplicaKnowledge:
    """The `ReplicaContext` of every replica of one broker."""

    def __init__(
        self,
        manager: ReplicaManager,
        repair: ReplicaRepair,
        fetchers: Fetchers,
        replica_fetch: ReplicaFetch,
        consumer_fetch: ConsumerFetch,
        high_watermarks: HighWatermarkEvents,
        clock: Clock,
        damaged_batches: DamagedBatches,
        divergences: Divergences,
    ) -> None:
        self._manager = manager
        self._repair = repair
        self._fetchers = fetchers
        self._sessions = replica_fetch.sessions
        self._waiting = consumer_fetch.waiting
        self._outrun = consumer_fetch.outrun
        self._high_watermarks = high_watermarks
        self._clock = clock
        self._damaged_batches = damaged_batches
        self._divergences = divergences

    def now(self) -> Clocks:
        return Clocks(self._clock.monotonic_ms(), self._clock.wall_ms())

    def session_of(self, partition: Partition, follower: int) -> int:
        leading = partition.leading
        progress = leading.followers.get(follower) if leading is not None else None
        if progress is None or progress.session is None:
            return 0
        return self._sessions.id_of(FollowerStream(follower, partition.synced), progress.session)

    def hw_stalled_ms(self, partition: Partition) -> int:
        waiting_ms = self._high_watermarks.waiting_ms(partition, self._clock.monotonic_ms())
        return NOT_KNOWN if waiting_ms is None else waiting_ms

    def outrun_consumers(self) -> Iterable[RejectedRequests]:
        return self._outrun.recent(self._clock.monotonic_ms())

    def waiting_consumers(self, partition: Partition) -> Sequence[WaitingConsumer]:
        now_ms = self._clock.monotonic_ms()
        return self._waiting.of(partition.name, partition.high_watermark, now_ms)

    def following(self, partition: Partition) -> FollowerState:
        found = self._fetchers.progress_of(partition)
        if found is not None:
            return found
        leader = partition.state.leader if partition.state is not None else NO_LEADER
        return FollowerState(NO_LEADER if leader == self._manager.broker_id else leader)

    def last_contacts(self, silent_ms: Mapping[int, int]) -> list[HeardBroker]:
        """Returns when this broker last heard from brokers that share partitions with it.

        `silent_ms`: by leader, how long it has left fetches without an answer.
        """
        now_ms = self._clock.monotonic_ms()
        fetched, answered_ms = self._sessions.last_requests(), self._fetchers.last_answers_ms()
        return [
            HeardBroker(
                broker_id,
                now_ms - fetched[broker_id] if broker_id in fetched else NOT_KNOWN,
                answered_ms.get(broker_id, NOT_KNOWN),
                silent_ms.get(broker_id, NOT_KNOWN),
            )
            for broker_id in sorted({*fetched, *answered_ms, *silent_ms})
        ]

    def damaged_offsets(self, key: ReplicaKey) -> Sequence[DamagedOffsets]:
        """Returns the first MAX_REPORTED_DAMAGED damaged ranges."""
        return [
            DamagedOffsets(*found) for found in self._damaged_batches.of(key)[:MAX_REPORTED_DAMAGED]
        ]

    def diverged_offsets(self, key: ReplicaKey) -> Sequence[DivergedOffsets]:
        return self._divergences.of(key)

    def failure_of(self, key: ReplicaKey) -> Failure | None:
        damage = self._repair.damage_of(key)
        if damage is not None:
            return Failure(damage.cause.value, damage.reason, damage.since_ms, damage.led_epoch)
        disk_rejection = self._manager.disk.of(key)
        if disk_rejection is not None:
            over_in_ms = disk_rejection.hang_over_in_ms(self._clock.monotonic_ms())
            return Failure(
                disk_rejection.cause.value,
                disk_rejection.message,
                disk_rejection.since_ms,
                disk_rejection.led_epoch,
                NOT_KNOWN if over_in_ms is None else over_in_ms,
            )
        partition = self._manager.find(key)
        rejection = None if partition is None else self._fetchers.rejection_of(partition)
        if rejection is not None:
            why, for_ms = rejection
            return Failure(REJECTS_LEADER, why, self._clock.monotonic_ms() - for_ms)
        return None
