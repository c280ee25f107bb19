"""Damage that a start finds, until the replicas have resigned.

Until then this broker is not registered. Otherwise it could be elected for what it has lost."""

from __future__ import annotations

from tidelog.model import TopicPartition
from tidelog_broker.background import RunBlocking
from tidelog_broker.damage.other_replicas import OtherReplicas
from tidelog_broker.damage.replica_repair import ReplicaRepair
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.start_progress import StartProgress
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_broker.storage.replica_directories import DamagedReplica
from tidelog_runtime.metadata.schema import NOT_WHOLE


class StartDamage:
    """Lets damaged replicas resign at a start. `found` has those that have not resigned yet."""

    def __init__(
        self,
        broker_id: int,
        logs: LogDirectory,
        repair: ReplicaRepair,
        others: OtherReplicas,
        cache: MetadataCache,
        run_blocking: RunBlocking,
    ) -> None:
        self.found: list[DamagedReplica] = []
        self._broker_id = broker_id
        self._logs = logs
        self._repair = repair
        self._others = others
        self._cache = cache
        self._run_blocking = run_blocking

    async def open_logs(self, start: StartProgress, *, intact: bool) -> None:
        """Opens all logs. `intact`: the directory holds all that it ever acknowledged."""
        await self._run_blocking(
            lambda: self.found.extend(self._logs.open_all(start.count, intact=intact))
        )

    async def resign(self) -> None:
        """Lets the damaged replicas resign. A broker may register, and be elected, only
        afterwards."""
        only_copies = {
            key for key, name in self._logs.undecided() if self._others.are_none(key, name)
        }
        await self._run_blocking(lambda: self.found.extend(self._logs.open_undecided(only_copies)))
        sole = [
            replica
            for replica in self.found
            if replica.unless_sole and self._others.are_none(replica.key, replica.name)
        ]
        self._repair.keep_only_copies(sole)
        damaged = [
            replica
            for replica in self.found
            if replica not in sole
            and (not replica.if_synced or self._is_synced(replica.name))
            and (not replica.if_others or self._has_other_intact_member(replica.name))
        ]
        await self._repair.resign_found(damaged)
        self.found.clear()

    def _is_synced(self, name: TopicPartition | None) -> bool:
        return name is not None and self._cache.is_synced(name.topic)

    def _has_other_intact_member(self, name: TopicPartition | None) -> bool:
        """Returns whether the ISR has another intact member. A sole replica continues with what it
        has."""
        known = self._cache.state_of(name) if name is not None else None
        return known is not None and any(
            member.broker_id != self._broker_id and member.broker_epoch != NOT_WHOLE
            for member in known.state.isr
        )
