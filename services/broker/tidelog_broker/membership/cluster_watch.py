"""Keeps the metadata cache true, and tells replicas and registration what concerns them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Protocol

import structlog

from tidelog.model import TopicPartition
from tidelog_broker.background import retry_pause
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.membership.registration import Registration
from tidelog_runtime.metadata.keys import (
    BrokerKey,
    Keys,
    ParsedKey,
    PartitionKey,
    TopicKey,
)
from tidelog_runtime.metadata.store import (
    MetadataStore,
    StoreRolledBackError,
    StoreUnavailableError,
)

RETRY_DELAY_S = 0.3

_log = structlog.get_logger()


class Replicas(Protocol):
    """Those of this broker; `ReplicaManager` is the real one."""

    @property
    def broker_id(self) -> int: ...

    def observed(self, partitions: Iterable[TopicPartition]) -> None:
        """Their keys have changed."""

    def configured(self, topics: Iterable[str]) -> None:
        """Theirs have."""


class ClusterWatch:
    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        cache: MetadataCache,
        replicas: Replicas,
        registration: Registration,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._keys = keys
        self._cache = cache
        self._replicas = replicas
        self._registration = registration
        self._rng = rng
        self.ready = asyncio.Event()
        # Set by every change of the cache; cleared by who waits for one.
        self.changed = asyncio.Event()
        # Set while no controller is active.
        self.controller_gone = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                snapshot = await self._store.snapshot(self._keys.root)
                self._react(self._cache.load(snapshot))
                self.ready.set()
                async for changes in self._store.watch(snapshot):
                    self._react(self._cache.apply(changes))
            except StoreUnavailableError:
                pass  # the store itself has told that it is away
            except StoreRolledBackError as error:
                # Wiped, or restored from a backup: what it says may contradict what this
                # broker has acted on. The data plane goes on with what it knows.
                _log.critical(
                    "metadata_rolled_back",
                    why=str(error),
                    fix="restore the newest etcd backup, or stop all brokers before starting anew",
                )
                return
            await retry_pause(RETRY_DELAY_S, self._rng)

    def _react(self, changed: Iterable[ParsedKey]) -> None:
        self._replicas.observed(k.partition for k in changed if isinstance(k, PartitionKey))
        self._replicas.configured(k.topic for k in changed if isinstance(k, TopicKey))
        own = BrokerKey(self._replicas.broker_id)
        if own.broker_id not in self._cache.brokers and (own in changed or self.ready.is_set()):
            self._registration.observed_gone(self._cache.revision)
        self.changed.set()
        if self._cache.controller is None:
            self.controller_gone.set()
        else:
            self.controller_gone.clear()
