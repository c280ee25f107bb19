"""Keeps this broker registered under a lease ("Metadata" in docs/internals/protocol.md).

A registration is only ever created. A new incarnation first deletes the registration of its
predecessor, if that is surely the dead process of the same data directory. It does so before it
opens its logs, which may take longer than a lease. It creates its own registration in a second
transaction, so that every incarnation has a creation revision of its own: the broker epoch
(rule `registrations-are-only-created`). That transaction also binds the broker id to
the data directory (`directory_binding`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

import structlog

from tidelog.state_changes.event import NO_REVISION, Cause, Detail, Kind, Stage
from tidelog_broker.background import first_of, retry_pause
from tidelog_broker.membership.directory_binding import DirectoryBinding, StoredKeys
from tidelog_broker.storage.data_directory import DataDirectory, DataDirectoryError
from tidelog_runtime.metadata.cluster_id import level_guard, registration_mark
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import STOPPING, BrokerRegistration, encode
from tidelog_runtime.metadata.store import (
    CreateRevision,
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
# How often the broker logs that another process holds its id.
TAKEN_LOG_INTERVAL_S = 10.0

_log = structlog.get_logger()


class Created(NamedTuple):
    """A registration that was created.

    `not_intact_reason`: why the data directory counts as intact only since then; empty: it was
    intact before.
    """

    broker_epoch: int
    registration: BrokerRegistration
    not_intact_reason: str


async def _ignore_reason(_reason: str) -> None:
    pass


class Registration:
    """Registers the broker, again whenever the registration is gone.

    An exception from `run` is a fault of the process. That includes `BrokerIdInUseError`: another
    data directory has taken the place of this one; and `UnsupportedLevelError`: the feature level
    was raised while this broker was not registered.
    """

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        broker_id: int,
        template: BrokerRegistration,
        directory: DataDirectory,
        binding: DirectoryBinding,
        lease_ttl_seconds: int,
        rng: random.Random,
        on_registered: Callable[[int], None],
        state_changes: StateChangeLog,
        on_waiting: Callable[[str], Awaitable[None]] = _ignore_reason,
    ) -> None:
        """`template` lacks the fields that `directory` provides.

        `on_waiting` is called with the reason while another process of this id is registered.
        """
        self._directory = directory
        self._binding = binding
        self._on_waiting = on_waiting
        self._store = store
        self._keys = keys
        self._key = keys.broker(broker_id)
        self._broker_id = broker_id
        self._template = template
        self._ttl = lease_ttl_seconds
        self._rng = rng
        self._on_registered = on_registered
        self._state_changes = state_changes
        self._lease: Lease | None = None
        self._created: Created | None = None
        self._vanished = asyncio.Event()
        self._gone_at = 0
        self.broker_epoch = 0
        # Another process of this broker id has been registered for longer than a lease.
        self.is_waiting = False

    @property
    def not_intact_reason(self) -> str:
        """Why the data directory counts as intact only since the last registration.

        Empty: it was intact before, or there is no registration yet.
        """
        return "" if self._created is None else self._created.not_intact_reason

    def observed_gone(self, revision: int) -> None:
        """Notes that the watch saw at `revision` that this broker's key does not exist.

        A revision before our registration concerns our predecessor. A later one may arrive before
        the answer to our own transaction.
        """
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
                self._emit(
                    Kind.REGISTRATION_LOST,
                    Stage.COMPLETED,
                    Cause.REMOVED if removed else Cause.BROKER_LEASE_ENDED,
                )
                await self._lease.revoke()
            except (StoreUnavailableError, LeaseLostError) as error:
                if not said_unavailable:
                    self._emit(
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
        """Rewrites the registration as stopping, and registers as stopping from now on.

        No leader admits a stopping broker, and no controller elects it (rule
        `stopping-broker-does-not-rejoin`). The broker epoch stays. If there is no registration yet,
        `run` writes the state. Raises `StoreError`.
        """
        self._template = replace(self._template, state=STOPPING)
        if self._lease is None or self._created is None:
            return
        await self._rewrite(self._created, self._lease)

    async def _rewrite(self, created: Created, lease: Lease) -> None:
        """Has no effect if another registration exists."""
        stopping = replace(created.registration, state=self._template.state)
        await self._store.transact(
            Transaction(
                guards=[CreateRevision(self._key, created.broker_epoch)],
                changes=[Put(self._key, encode(stopping), lease.id)],
            )
        )

    async def withdraw(self) -> None:
        """Ends the registration at once. Raises `StoreError`."""
        if self._lease is not None:
            await self._lease.revoke()

    async def _register(self) -> None:
        lease = await self._store.grant_lease(self._ttl)
        try:
            created = await self._create(lease)
            broker_epoch, registration, reason = created
            if self._template.state != registration.state:
                # The broker began to stop after this was written, and `stopping` had no lease for
                # the rewrite.
                await self._rewrite(created, lease)
        except (StoreError, DataDirectoryError):
            # The next attempt has a lease of its own; this one must end.
            await lease.revoke()
            raise
        self._lease = lease
        self._created = created
        self.is_waiting = False
        self.broker_epoch = broker_epoch
        if reason:
            _log.warning(
                "data_directory_not_intact",
                broker_id=self._broker_id,
                directory=self._directory.identity.directory_id,
                why=reason,
                broker_epoch=broker_epoch,
            )
        if self._gone_at <= broker_epoch:
            self._vanished.clear()
        self._emit(
            Kind.REGISTRATION,
            Stage.COMPLETED,
            revision=broker_epoch,
            address=self._template.address,
            state=self._template.state,
            whole_since=registration.whole_since or broker_epoch,
            synced_whole_since=registration.synced_whole_since or broker_epoch,
            directory_id=registration.node_uuid,
            not_intact_reason=reason,
        )
        self._on_registered(broker_epoch)

    def _emit(
        self,
        kind: Kind,
        stage: Stage,
        cause: Cause = Cause.NONE,
        revision: int = NO_REVISION,
        **details: Detail,
    ) -> None:
        """Emits an event.

        `revision`: that of the registration. The revision of its end is not known where the
        registration was only found to be gone.
        """
        self._state_changes.emit(
            kind,
            stage,
            cause=cause,
            broker=self._broker_id,
            broker_epoch=self.broker_epoch,
            revision=revision,
            details=details,
        )

    async def _create(self, lease: Lease) -> Created:
        """Creates the key once it is free.

        Raises `BrokerIdInUseError` if the id belongs to another data directory,
        `UnsupportedLevelError`, and `StoreError`.
        """
        waiting = _Waiting(asyncio.get_running_loop().time)
        while True:
            try:
                created = await self._try_to_create(lease, waiting)
            except OSError as error:
                # The store must not name what is not on the disk.
                _log.error("identity_not_written", why=str(error))
                created = None
            if created is not None:
                return created
            await retry_pause(RETRY_DELAY_S, self._rng)

    async def _try_to_create(self, lease: Lease, waiting: _Waiting) -> Created | None:
        """Returns None if another change came first, or if another process is registered."""
        held = await self._binding.read()
        reason = self._binding.require_ownership(held)
        if not await self._binding.end_previous(held):
            await self._wait_for_other(held, waiting)
            return None
        at_level = await level_guard(self._store, self._keys, self._template.levels)
        identity = self._directory.identity
        created = replace(
            self._template,
            whole_since=identity.whole_since,
            synced_whole_since=identity.synced_whole_since,
        )
        guards, changes = self._binding.registration_parts(held, created.address, reason)
        result = await self._store.transact(
            Transaction(
                guards=[ModRevision(self._key, 0), at_level, *guards],
                changes=[
                    Put(self._key, encode(created), lease.id),
                    registration_mark(self._keys, self._key),
                    *changes,
                ],
            )
        )
        return Created(result.revision, created, reason) if result.succeeded else None

    async def _wait_for_other(self, held: StoredKeys, waiting: _Waiting) -> None:
        """Reports that another process holds the id, once it is known to be alive.

        It is alive if it is still registered when the lease of a dead process would have ended.
        """
        assert held.registered is not None
        self.is_waiting = waiting.is_long(self._ttl)
        if not waiting.is_to_be_reported(self._ttl):
            return
        other = held.registered
        _log.error(
            "broker_id_taken",
            broker_id=self._broker_id,
            by=other.address,
            fix="stop one of the two processes; give each broker its own broker_id and data_dir",
        )
        await self._on_waiting(
            f"broker id {self._broker_id} is registered by another process at {other.address}, "
            "with this data directory or a copy of it; this process waits until that registration "
            "ends; stop one of the two"
        )


class _Waiting:
    """The wait for the registration of another process to end."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = now()
        self._reported_at: float | None = None

    def is_long(self, lease_ttl_seconds: int) -> bool:
        """Whether the lease of a dead process would have ended."""
        return self._now() - self._since > lease_ttl_seconds + RETRY_DELAY_S

    def is_to_be_reported(self, lease_ttl_seconds: int) -> bool:
        """Returns True once the wait is long, and then every TAKEN_LOG_INTERVAL_S."""
        if not self.is_long(lease_ttl_seconds):
            return False
        now = self._now()
        if self._reported_at is not None and now - self._reported_at < TAKEN_LOG_INTERVAL_S:
            return False
        self._reported_at = now
        return True
