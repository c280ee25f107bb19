"""Controlled shutdown: a stopping broker gives up its leaderships and ISR memberships."""

from __future__ import annotations

import asyncio

from tidelog.state_changes.event import Cause, Change, Detail, Kind, Stage
from tidelog_broker.background import first_of
from tidelog_broker.membership.change_ids import ChangeIds
from tidelog_broker.membership.cluster_watch import ClusterWatch
from tidelog_broker.membership.hand_over import is_awaited
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.membership.registration import Registration
from tidelog_broker.partition.partition import Partition
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_runtime.metadata.store import StoreError
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class ControlledShutdown:
    def __init__(
        self,
        broker_id: int,
        manager: ReplicaManager,
        cache: MetadataCache,
        change_ids: ChangeIds,
        state_changes: StateChangeLog,
        timeout_ms: int,
    ) -> None:
        self._broker_id = broker_id
        self._manager = manager
        self._cache = cache
        self._change_ids = change_ids
        self._state_changes = state_changes
        self._timeout_ms = timeout_ms

    async def hand_over(self, registration: Registration, watch: ClusterWatch) -> None:
        """Requests to lead no partition and to be in no ISR, and waits for that.

        The wait ends early if no other broker can lead, if no controller is active, or after the
        timeout.
        """
        change = self._change_ids.stopping()
        self._report(change, Stage.REQUESTED)
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await registration.stopping()
                await self._until_handed_over(watch)
        except TimeoutError:
            self._report(change, Stage.FAILED, Cause.TIMEOUT)
        except StoreError as error:
            self._report(change, Stage.FAILED, Cause.STORE_UNREACHABLE, why=str(error))
        else:
            self._report(change, Stage.COMPLETED)

    def _report(
        self, change: Change, stage: Stage, cause: Cause | None = None, **details: Detail
    ) -> None:
        """Emits a stage of the stop, with the number of awaited partitions."""
        awaited = sum(map(self._is_awaited, self._manager.all()))
        self._state_changes.emit(
            Kind.BROKER_STOPPING,
            stage,
            change=change,
            cause=cause,
            broker=self._broker_id,
            broker_epoch=self._manager.broker_epoch,
            details={"awaited": awaited, **details},
        )

    async def _until_handed_over(self, watch: ClusterWatch) -> None:
        """Waits until no partition is awaited or no controller is active.

        A change of the cluster does not cause a check of thousands of partitions, only of those at
        the end of the list. A partition that was removed from the list may be awaited again, so the
        list is built again before the wait ends.
        """
        awaited = list(self._manager.all())
        while not watch.controller_gone.is_set():
            while awaited and not self._is_awaited(awaited[-1]):
                awaited.pop()
            if not awaited:
                awaited = list(filter(self._is_awaited, self._manager.all()))
                if not awaited:
                    return
            watch.changed.clear()
            await first_of(watch.changed.wait(), watch.controller_gone.wait())

    def _is_awaited(self, partition: Partition) -> bool:
        cache = self._cache
        known = cache.state_of(partition.name)
        if known is None or known.state.topic_id != partition.topic_id:
            return False
        synced = cache.is_synced(partition.name.topic)
        return is_awaited(self._broker_id, known.state, cache.brokers, synced=synced)
