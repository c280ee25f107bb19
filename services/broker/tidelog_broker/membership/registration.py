"""Keeps this broker registered under a lease (section 2 of ARCHITECTURE.md).

A registration is only ever created. A new life first deletes its predecessor, whom it
knows by the node uuid on its disk, before it opens its logs, which may take longer than a
lease; and then creates its own in a second transaction, so that every life has a creation
revision of its own: the broker epoch (interleaving 1 of ARCHITECTURE.md).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import structlog

from tidelog.state_changes.event import NO_REVISION, Cause, Detail, Kind, Stage
from tidelog_broker.background import first_of, retry_pause
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    STOPPING,
    BrokerRegistration,
    decode_broker,
    encode,
)
from tidelog_runtime.metadata.store import (
    CreateRevision,
    Delete,
    Lease,
    LeaseLostError,
    MetadataStore,
    ModRevision,
    Put,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
    Transaction,
)
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

RETRY_DELAY_S = 0.2
# How long another node may hold this broker's id before it is said again.
TAKEN_LOG_INTERVAL_S = 10.0

_log = structlog.get_logger()


async def end_former_life(
    store: MetadataStore, key: str, node_uuid: str
) -> BrokerRegistration | None:
    """Deletes what a former life of this node has left under the broker's key, which counts as
    alive until its lease ends; returns another node's, if that is there. Raises `StoreError`."""
    present = await store.get(key)
    if present is None:
        return None
    registration = decode_broker(present.value)
    if registration.node_uuid != node_uuid:
        return registration
    await store.transact(
        Transaction(
            guards=[CreateRevision(key, present.create_revision)],
            changes=[Delete(key)],
        )
    )
    return None


class Registration:
    """`run` registers, and registers again whenever the registration is gone."""

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        broker_id: int,
        wanted: BrokerRegistration,
        lease_ttl_seconds: int,
        rng: random.Random,
        on_registered: Callable[[int], None],
        state_changes: StateChangeLog,
    ) -> None:
        self._store = store
        self._key = keys.broker(broker_id)
        self._broker_id = broker_id
        self._wanted = wanted
        self._ttl = lease_ttl_seconds
        self._rng = rng
        self._on_registered = on_registered
        self._state_changes = state_changes
        self._lease: Lease | None = None
        self._vanished = asyncio.Event()
        self._gone_at = 0
        self.broker_epoch = 0

    def set_whole_since(self, whole_since: int, synced_whole_since: int) -> None:
        """For the next registration of this process."""
        self._wanted = replace(
            self._wanted, whole_since=whole_since, synced_whole_since=synced_whole_since
        )

    def observed_gone(self, revision: int) -> None:
        """The watch saw at `revision` that this broker's key is not there. What is older
        than our registration speaks of its predecessor; what is newer may come before
        the answer to our registering."""
        self._gone_at = max(self._gone_at, revision)
        if self._gone_at > self.broker_epoch:
            self._vanished.set()

    async def run(self) -> None:
        said_unavailable = False
        while True:
            try:
                await self._register()
                said_unavailable = False
                assert self._lease is not None
                await first_of(self._lease.wait_lost(), self._vanished.wait())
                removed = self._vanished.is_set()
                self._tell(
                    Kind.REGISTRATION_LOST,
                    Stage.COMPLETED,
                    Cause.REMOVED if removed else Cause.BROKER_LEASE_ENDED,
                )
                await self._lease.revoke()
            except (StoreUnavailableError, LeaseLostError) as error:
                if not said_unavailable:
                    self._tell(
                        Kind.REGISTRATION,
                        Stage.FAILED,
                        Cause.STORE_UNREACHABLE,
                        why=str(error) or "its lease ran out meanwhile",
                    )
                    said_unavailable = True
                await retry_pause(RETRY_DELAY_S, self._rng)
            except StoreRolledBackError as error:
                _log.critical("registration_ended", why=str(error))
                return

    async def stopping(self) -> None:
        """Rewrites the registration, so that nobody elects or admits this broker any more
        (interleaving 10), and registers like that should it have to again. The broker
        epoch stays. While it registers, `run` writes it. Raises `StoreError`."""
        self._wanted = replace(self._wanted, state=STOPPING)
        if self._lease is None:
            return
        await self._rewrite(self.broker_epoch, self._lease)

    async def _rewrite(self, broker_epoch: int, lease: Lease) -> None:
        """Without effect where another registration stands."""
        await self._store.transact(
            Transaction(
                guards=[CreateRevision(self._key, broker_epoch)],
                changes=[Put(self._key, encode(self._wanted), lease.id)],
            )
        )

    async def withdraw(self) -> None:
        """Ends the registration at once. Raises `StoreError`."""
        if self._lease is not None:
            await self._lease.revoke()

    async def _register(self) -> None:
        lease = await self._store.grant_lease(self._ttl)
        try:
            broker_epoch, created = await self._create(lease)
            if self._wanted.state != created.state:
                # Only since it was written is this broker stopping, and `stopping` knew no
                # lease to rewrite it under.
                await self._rewrite(broker_epoch, lease)
        except StoreError:
            # The next attempt has a lease of its own; this one must not live for ever.
            await lease.revoke()
            raise
        self._lease = lease
        self.broker_epoch = broker_epoch
        if self._gone_at <= broker_epoch:
            self._vanished.clear()
        self._tell(
            Kind.REGISTRATION,
            Stage.COMPLETED,
            revision=broker_epoch,
            address=self._wanted.address,
            state=self._wanted.state,
            whole_since=self._wanted.whole_since or broker_epoch,
            synced_whole_since=self._wanted.synced_whole_since or broker_epoch,
        )
        self._on_registered(broker_epoch)

    def _tell(
        self,
        kind: Kind,
        stage: Stage,
        cause: Cause = Cause.NONE,
        revision: int = NO_REVISION,
        **details: Detail,
    ) -> None:
        """`revision`: of the registration. At which it ended is not known where it was only
        found to be gone."""
        self._state_changes.tell(
            kind,
            stage,
            cause=cause,
            broker=self._broker_id,
            broker_epoch=self.broker_epoch,
            revision=revision,
            details=details,
        )

    async def _create(self, lease: Lease) -> tuple[int, BrokerRegistration]:
        """Creates the key, once it is free; returns the broker epoch, and what it created."""
        said_at = -TAKEN_LOG_INTERVAL_S
        loop = asyncio.get_running_loop()
        while True:
            other = await end_former_life(self._store, self._key, self._wanted.node_uuid)
            if other is not None and loop.time() - said_at >= TAKEN_LOG_INTERVAL_S:
                said_at = loop.time()
                _log.error(
                    "broker_id_taken",
                    broker_id=self._broker_id,
                    by=other.address,
                    fix="give each broker its own broker_id and data_dir",
                )
            created = self._wanted
            result = await self._store.transact(
                Transaction(
                    guards=[ModRevision(self._key, 0)],
                    changes=[Put(self._key, encode(created), lease.id)],
                )
            )
            if result.succeeded:
                return result.revision, created
            await retry_pause(RETRY_DELAY_S, self._rng)
