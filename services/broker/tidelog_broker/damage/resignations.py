"""The resignation of damaged replicas: the broker itself removes a replica from ISR and eligible
set. If the replica leads, or the partition has no leader, it records there that the replica is not
intact (rule `damaged-replica-resigns-first`).

A compare-and-swap on the partition's key needs no controller, and is durable before anything is
cut. The controller's watch sees it and elects another leader."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import structlog

from tidelog.model import NO_LEADER, TopicPartition
from tidelog.state_changes.event import Cause, Change, Kind, Stage
from tidelog_broker.background import retry_pause
from tidelog_broker.membership.change_ids import ChangeIds
from tidelog_broker.membership.metadata_cache import MetadataCache, VersionedState
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    LeaderAndIsr,
    decode_leader_and_isr,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import (
    MAX_TRANSACTION_CHANGES,
    KeyValue,
    MetadataStore,
    ModRevision,
    Put,
    StoreUnavailableError,
    Transaction,
)
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

RETRY_DELAY_S = 0.3

_log = structlog.get_logger()


def resignation(found: LeaderAndIsr | None, topic_id: str, broker_id: int) -> LeaderAndIsr | None:
    """Returns what a damaged replica writes over the value that it found; None: nothing.

    Nothing is written if the replica cannot be elected as clean, and no leader counts what it held
    before. Without a leader there always is something to write, perhaps an equal value: the replica
    may have been described for a recovery (rule `best-last-known-log-leads`), which holds for one
    revision of the key."""
    if found is None or found.topic_id != topic_id or broker_id not in found.replicas:
        # A replica is removed only with a new leader epoch, and then does not count.
        return None
    if found.leader == NO_LEADER:
        return found.resigned(broker_id)
    relied_on = any(
        member.broker_id == broker_id and member.broker_epoch != NOT_WHOLE
        for member in (*found.isr, *found.eligible)
    )
    known_to_leader = found.leader != broker_id
    return found.resigned(broker_id) if relied_on or known_to_leader else None


@dataclass(slots=True)
class _Known:
    """What is known of one partition while its replica resigns.

    - `change`: the state change that reports it.
    - `observed_revision`: the first revision of its key that the store returned meanwhile, if
      it did.
    - `written`: what was written last, perhaps without an answer.
    """

    found: _Found
    change: Change
    observed_revision: int | None = None
    written: LeaderAndIsr | None = None

    def observe(self, found: _Found) -> None:
        self.found = found
        if self.observed_revision is None:
            self.observed_revision = found.revision

    def to_write(self, topic_id: str, broker_id: int) -> LeaderAndIsr | None:
        """Returns None if it has resigned, or if there is nothing to resign from."""
        present = self.found.state
        state = resignation(present, topic_id, broker_id)
        if present is None or state is None:
            return None
        if present.leader != NO_LEADER:
            # A write without an answer was applied.
            return None if present == self.written else replace(state, change=self.change)
        # It does not matter which broker wrote it: a replica out of service is not described any
        # more.
        moved = self.observed_revision is not None and self.found.revision > self.observed_revision
        return None if moved and present == state else replace(state, change=self.change)


class _Found(NamedTuple):
    """A partition's key.

    - `state`: None also if the value cannot be read.
    - `revision`: 0 if the key is absent.
    """

    state: LeaderAndIsr | None
    revision: int
    malformed: bool = False


class Resignations:
    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        cache: MetadataCache,
        broker_id: int,
        rng: random.Random,
        change_ids: ChangeIds,
        state_changes: StateChangeLog,
    ) -> None:
        self._store = store
        self._keys = keys
        self._cache = cache
        self._broker_id = broker_id
        self._rng = rng
        self._change_ids = change_ids
        self._state_changes = state_changes

    async def resign(
        self,
        replicas: Iterable[tuple[ReplicaKey, TopicPartition | None]],
        on_resigned: Callable[[ReplicaKey, int], None],
        cause: Callable[[ReplicaKey], Cause] = lambda _: Cause.CORRUPT,
    ) -> None:
        """Lets replicas resign, and calls `on_resigned` for each; returns after the last.

        It is called as soon as the store records that the replica is not intact, or that none
        relies on it, with the revision from which on that holds: older decisions rely on what is
        cut now. While the store is unavailable this method retries. A missing name is taken from
        the metadata, which must have been read. Raises `StoreRolledBackError`."""
        waiting = self._resign_named(replicas, on_resigned)
        said_unavailable = False
        known: dict[TopicPartition, _Known] = {}
        while waiting:
            batch = self._next_batch(waiting)
            for name in batch:
                if name not in known:
                    change = self._change_ids.next(cause(batch[name]))
                    known[name] = _Known(self._cached(name), change)
            try:
                revisions = await self._write(batch, known)
                said_unavailable = False
            except StoreUnavailableError as error:
                # If it was applied nevertheless, the next attempt finds that out.
                if not said_unavailable:
                    said_unavailable = True
                    _log.warning("resignation_waits_for_store", why=str(error))
                await self._pause()
                continue
            if revisions is None:
                continue  # evaluated again with the values in the rejection
            unreadable = {}
            for name, key in batch.items():
                del waiting[key]
                if known[name].found.malformed:
                    unreadable[key] = name
                else:
                    on_resigned(key, revisions[name])
            if unreadable:
                await self._pause()
                # Behind the others, because there may be more of these than a transaction takes.
                waiting.update(unreadable)

    def _resign_named(
        self,
        replicas: Iterable[tuple[ReplicaKey, TopicPartition | None]],
        on_resigned: Callable[[ReplicaKey, int], None],
    ) -> dict[ReplicaKey, TopicPartition]:
        named: dict[ReplicaKey, TopicPartition] = {}
        for key, name in replicas:
            name = name or self._cache.name_of(key.topic_id, key.partition)
            if name is None:
                _log.info("resignation_void", topic_id=key.topic_id, why="the topic was deleted")
                on_resigned(key, 0)
            else:
                named[key] = name
        return named

    async def _pause(self) -> None:
        await retry_pause(RETRY_DELAY_S, self._rng)

    def _next_batch(
        self, waiting: Mapping[ReplicaKey, TopicPartition]
    ) -> dict[TopicPartition, ReplicaKey]:
        """Takes one replica for each name. A topic that was created again may have two."""
        batch: dict[TopicPartition, ReplicaKey] = {}
        for key, name in waiting.items():
            batch.setdefault(name, key)
            if len(batch) == MAX_TRANSACTION_CHANGES:
                break
        return batch

    def _cached(self, name: TopicPartition) -> _Found:
        """Returns what the cache has. It may be old, which the guard detects."""
        versioned: VersionedState | None = self._cache.state_of(name)
        if versioned is None:
            return _Found(None, 0)
        return _Found(versioned.state, versioned.revision)

    async def _write(
        self,
        batch: Mapping[TopicPartition, ReplicaKey],
        known: Mapping[TopicPartition, _Known],
    ) -> dict[TopicPartition, int] | None:
        """Writes one transaction; its guards are checked even if there is nothing to write.

        Returns the revisions of the keys afterwards; None: it was rejected, and `known` has what
        the store has."""
        changes = []
        resigning = []
        for name, key in batch.items():
            state = known[name].to_write(key.topic_id, self._broker_id)
            if state is not None:
                if known[name].written is None:
                    self._emit(Stage.REQUESTED, name, state, known[name].found.revision)
                known[name].written = state
                changes.append(Put(self._keys.leader_and_isr(name), encode_leader_and_isr(state)))
                resigning.append(name)
        guards = [ModRevision(self._keys.leader_and_isr(n), known[n].found.revision) for n in batch]
        result = await self._store.transact(Transaction(guards, changes))
        if result.succeeded:
            revisions = {name: known[name].found.revision for name in batch}
            revisions |= dict.fromkeys(resigning, result.revision)
            for name in batch:
                # Also for a write without an answer that was found in the store now.
                written = known[name].written
                if written is not None:
                    self._emit(Stage.COMPLETED, name, written, revisions[name])
            return revisions
        for name in batch:
            known[name].observe(_parse(result.current.get(self._keys.leader_and_isr(name))))
        return None

    def _emit(self, stage: Stage, name: TopicPartition, state: LeaderAndIsr, revision: int) -> None:
        self._state_changes.emit(
            Kind.RESIGNATION,
            stage,
            change=state.change,
            name=name,
            topic_id=state.topic_id,
            broker=self._broker_id,
            broker_epoch=self._change_ids.broker_epoch,
            controller_epoch=state.controller_epoch,
            leader_epoch=state.leader_epoch,
            revision=revision,
            details={"isr": sorted(state.isr_ids), "leader": state.leader},
        )


def _parse(item: KeyValue | None) -> _Found:
    if item is None:
        return _Found(None, 0)
    try:
        return _Found(decode_leader_and_isr(item.value), item.mod_revision)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _log.error(
            "metadata_malformed",
            key=item.key,
            why=f"{type(error).__name__}: {error}",
            fix="correct the value, or delete the key; a damaged replica waits to resign from it",
        )
        return _Found(None, item.mod_revision, malformed=True)
