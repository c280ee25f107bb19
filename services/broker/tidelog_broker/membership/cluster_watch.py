"""Keeps the metadata cache up to date, and notifies replicas and the registration of changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import structlog

from tidelog.model import TopicPartition
from tidelog_broker.background import retry_pause
from tidelog_broker.membership.metadata_cache import MetadataCache, as_changes
from tidelog_broker.membership.registration import Registration
from tidelog_runtime.cooperative import ITEMS_PER_SLICE, map_yielding
from tidelog_runtime.metadata.keys import (
    BrokerKey,
    Keys,
    ParsedKey,
    PartitionKey,
    TopicKey,
)
from tidelog_runtime.metadata.store import (
    MetadataStore,
    Snapshot,
    StoreRolledBackError,
    StoreUnavailableError,
)

RETRY_DELAY_S = 0.3

_log = structlog.get_logger()


class Replicas(Protocol):
    """The replicas of this broker; `ReplicaManager` implements it."""

    @property
    def broker_id(self) -> int: ...

    def observed(self, partitions: Iterable[TopicPartition]) -> None:
        """The keys of these partitions have changed."""

    def configured(self, topics: Iterable[str]) -> None:
        """The keys of these topics have changed."""


class ClusterWatch:
    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        cache: MetadataCache,
        replicas: Replicas,
        registration: Registration,
        rng: random.Random,
        on_level: Callable[[int], None],
    ) -> None:
        """`on_level`: called with the cluster's feature level when it is first known, and when it
        rises."""
        self._store = store
        self._keys = keys
        self._cache = cache
        self._replicas = replicas
        self._registration = registration
        self._rng = rng
        self._on_level = on_level
        self._level = 0
        self.ready = asyncio.Event()
        # Set by every change of the cache; the waiter clears it.
        self.changed = asyncio.Event()
        # Set while no controller is active.
        self.controller_gone = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                snapshot = await self._store.snapshot(self._keys.root)
                self._react(await self._load(snapshot))
                self.ready.set()
                since_turn = 0
                async for changes in self._store.watch(snapshot):
                    self._react(self._cache.apply(changes))
                    # One answer of the store may carry thousands of elections.
                    since_turn += len(changes)
                    if since_turn >= ITEMS_PER_SLICE:
                        since_turn = 0
                        await asyncio.sleep(0)
            except StoreUnavailableError:
                pass  # the store has reported its outage itself
            except StoreRolledBackError as error:
                if not self.ready.is_set():
                    raise
                # The store was wiped or restored from a backup and may contradict what this broker
                # has acted on. The data plane continues with the metadata that it has.
                _log.critical(
                    "metadata_rolled_back",
                    why=str(error),
                    fix="restore the newest etcd backup, or stop all brokers before a start with "
                    "an empty store",
                )
                return
            await retry_pause(RETRY_DELAY_S, self._rng)

    async def _load(self, snapshot: Snapshot) -> Sequence[ParsedKey]:
        """Loads a snapshot in slices and returns its keys.

        The cache keeps its previous content until all is read.
        """
        fresh = MetadataCache(self._keys)
        parsed = await map_yielding(lambda change: fresh.apply([change]), as_changes(snapshot))
        self._cache.adopt(fresh, snapshot.revision)
        return [key for keys in parsed for key in keys]

    def _react(self, changed: Iterable[ParsedKey]) -> None:
        self._replicas.observed(k.partition for k in changed if isinstance(k, PartitionKey))
        self._replicas.configured(k.topic for k in changed if isinstance(k, TopicKey))
        own = BrokerKey(self._replicas.broker_id)
        if own.broker_id not in self._cache.brokers and (own in changed or self.ready.is_set()):
            self._registration.observed_gone(self._cache.revision)
        if self._cache.feature_level > self._level:
            self._level = self._cache.feature_level
            self._on_level(self._level)
        self.changed.set()
        if self._cache.controller is None:
            self.controller_gone.set()
        else:
            self.controller_gone.clear()
