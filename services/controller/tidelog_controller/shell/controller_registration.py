"""Registers this controller, active or standby, so that others know it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from structlog.typing import FilteringBoundLogger

from tidelog_controller.shell.contested_id import ContestedId
from tidelog_controller.shell.lease_end import end_lease
from tidelog_controller.state.crash_series import CrashSeries
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.cluster_id import (
    UnsupportedLevelError,
    level_guard,
    registration_mark,
)
from tidelog_runtime.metadata.controller_records import (
    SEEN_INTERVAL_SECONDS,
    KnownController,
    decode_known_controller,
    encode_known_controller,
)
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    ControllerProcess,
    decode_controller_process,
    encode,
)
from tidelog_runtime.metadata.store import (
    KeyValue,
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

RETRY_SECONDS = 0.5
REVOKE_TIMEOUT_SECONDS = 1.0


class ControllerRegistration:
    """The controller's registration, under a lease of its own.

    The lease of a controller term ends with the term. A process that starts within the lease of its
    predecessor in the same place overwrites the key. While a process of another place holds the
    key, this one waits. `has_id`: set while no other process is known to hold it.
    """

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        controller_id: int,
        process: ControllerProcess,
        lease_ttl_seconds: int,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock
        self._key = keys.controller_process(controller_id)
        self._known_key = keys.known_controller(controller_id)
        self._process = process
        self._lease_ttl_seconds = lease_ttl_seconds
        self._log = log
        # The fault that ends the process; empty: an orderly end.
        self.fault = ""
        self.has_id = asyncio.Event()
        # Of the processes before this one; None: not known yet.
        self._crashes: CrashSeries | None = None
        self._crash_reason = ""
        self._contested = ContestedId(
            store, keys, controller_id, process, lease_ttl_seconds, clock, log
        )

    async def run(self) -> None:
        """Runs until cancelled, then ends the registration at once."""
        try:
            await self._run()
        finally:
            await self._contested.end()

    async def _run(self) -> None:
        while True:
            try:
                lease = await self._register()
            except (StoreRolledBackError, UnsupportedLevelError):
                # The election reports this error and ends the process.
                return
            except (StoreUnavailableError, LeaseLostError):
                lease = None
            if lease is None:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            try:
                await self._contested.end()
                await self._keep_process_key(lease)
            except asyncio.CancelledError:
                await self._note_end()
                raise
            finally:
                await self._end(lease)

    async def _keep_process_key(self, lease: Lease) -> None:
        """Records the controller as seen at intervals until the lease is lost."""
        while True:
            try:
                async with asyncio.timeout(SEEN_INTERVAL_SECONDS):
                    await lease.wait_lost()
                    return
            except TimeoutError:
                await self._note(self._seen())

    def _seen(self, *, ends: bool = False) -> Put:
        now_ms, fault = self._clock.wall_ms(), self.fault if ends else ""
        known = KnownController(
            self._process.address,
            now_ms,
            stopped_at_ms=now_ms if ends and not fault else 0,
            fault=fault,
            fault_at_ms=now_ms if fault else 0,
        )
        if self._crashes and not known.stopped_at_ms:
            length, since_ms, at_ms = self._crashes
            known = replace(
                known,
                crashes=length,
                crashing_since_ms=since_ms,
                crashed_at_ms=at_ms,
                crash_reason=self._crash_reason,
            )
        return Put(self._known_key, encode_known_controller(known))

    async def _note(self, put: Put) -> None:
        """Writes without retry: no decision depends on it, and the next write follows."""
        with suppress(StoreError):
            await self._store.transact(Transaction([], [put]))

    async def _note_end(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REVOKE_TIMEOUT_SECONDS):
                await self._note(self._seen(ends=True))

    async def _count_crash(self) -> None:
        """Reads how the process before this one ended. Without a stop, it crashed."""
        if self._crashes is not None:
            return
        held = await self._store.get(self._known_key)
        self._crashes = CrashSeries()
        with suppress(ValueError, TypeError):
            past = decode_known_controller(held.value) if held is not None else None
            if past is not None and not past.stopped_at_ms:
                before = CrashSeries(past.crashes, past.crashing_since_ms, past.crashed_at_ms)
                self._crashes = before.extended(self._clock.wall_ms())
                self._crash_reason = past.fault

    async def _register(self) -> Lease | None:
        """Returns the lease. None: another process is registered, or the key changed meanwhile."""
        held = await self._store.get(self._key)
        other = _process(held)
        if other is not None and not other.is_of_place(self._process):
            self.has_id.clear()
            await self._contested.waits(other)
            return None
        self.has_id.set()
        await self._count_crash()
        at_level = await level_guard(self._store, self._keys, self._process.levels)
        lease = await self._store.grant_lease(self._lease_ttl_seconds)
        written = False
        try:
            guard = ModRevision(self._key, 0 if held is None else held.mod_revision)
            put = Put(self._key, encode(self._process), lease.id)
            mark = registration_mark(self._keys, self._key)
            result = await self._store.transact(
                Transaction([guard, at_level], [put, mark, self._seen()])
            )
            written = result.succeeded
        finally:
            # If the write is applied after all, its key ends with the lease.
            if not written:
                await self._end(lease)
        return lease if written else None

    async def _end(self, lease: Lease) -> None:
        await end_lease(lease, REVOKE_TIMEOUT_SECONDS, self._log, "controller_registration_left")


def _process(held: KeyValue | None) -> ControllerProcess | None:
    """None: no controller has written the key."""
    with suppress(ValueError, TypeError):
        return None if held is None else decode_controller_process(held.value)
    return None
