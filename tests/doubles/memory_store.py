"""A metadata store in memory, for tests and benchmarks.

It behaves as `EtcdStore` does and has no clock of its own: it waits on the event loop. Several
stores over one `MemoryData` represent several clients of one etcd.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from doubles.memory_data import MemoryData
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.store import (
    Changed,
    KeyValue,
    Snapshot,
    StoreClosedError,
    StoreRolledBackError,
    StoreUnavailableError,
    Transaction,
    TransactionResult,
    check_lease_ttl,
)
from tidelog_runtime.metadata.watch_view import WatchView

# Number of keep-alives within a lease's time to live, as in `EtcdStore`.
KEEP_ALIVES_PER_TTL = 3


class MemoryStore:
    def __init__(self, clock: Clock, data: MemoryData | None = None) -> None:
        self.data = MemoryData() if data is None else data
        self._clock = clock
        self._connected = True
        self._closed = False
        self._rolled_back = False
        self._highest_revision = self.data.revision
        self._leases: dict[int, MemoryLease] = {}
        # Set when a watch may have new changes. A dict, because its order is deterministic.
        self._wakes: dict[asyncio.Event, None] = {}
        self.data.listen(self._on_change)

    @property
    def seen_revision(self) -> int:
        return self._highest_revision

    def observe_revision(self, revision: int) -> None:
        self._highest_revision = max(self._highest_revision, revision)

    async def get(self, key: str) -> KeyValue | None:
        await self._reach_store()
        item = self.data.get(key)
        await _answer()
        return item

    async def snapshot(self, prefix: str) -> Snapshot:
        await self._reach_store()
        snapshot = self.data.snapshot(prefix)
        await _answer()
        return snapshot

    async def transact(self, transaction: Transaction) -> TransactionResult:
        await self._reach_store()
        result = self.data.transact(transaction)
        await _answer()
        return result

    async def watch(self, snapshot: Snapshot) -> AsyncIterator[Sequence[Changed]]:
        view = WatchView(snapshot)
        wake = asyncio.Event()
        self._wakes[wake] = None
        try:
            while True:
                self._check_usable()
                wake.clear()
                for changes in self._news(view):
                    yield changes
                await wake.wait()
        finally:
            del self._wakes[wake]

    async def grant_lease(self, ttl_seconds: int) -> MemoryLease:
        check_lease_ttl(ttl_seconds)
        await self._reach_store()
        lease = MemoryLease(self, self.data.grant_lease(), ttl_seconds, self._clock)
        self._leases[lease.id] = lease
        await _answer()
        return lease

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for lease in self._leases.values():
            lease.pause_keep_alive()
            lease.abandon()
        self.data.stop_listening(self._on_change)
        self._wake_all()

    def disconnect(self) -> None:
        """Disconnects the store: no request is answered, and its leases are not kept alive."""
        self._connected = False
        for lease in self._leases.values():
            lease.pause_keep_alive()

    def reconnect(self) -> None:
        self._connected = True
        for lease in self._leases.values():
            lease.resume_keep_alive()
        self._on_change()

    def pause_keep_alive(self, lease_id: int) -> None:
        """Stops the keep-alives; the lease expires one time to live after the last one."""
        self._leases[lease_id].pause_keep_alive()

    def expire_lease(self, lease_id: int) -> None:
        """Expires the lease at once."""
        self.data.end_lease(lease_id)

    def compact(self) -> None:
        """Discards the history, so that a watch that is behind has to read a snapshot again."""
        self.data.compact(self.data.revision)

    async def revoke(self, lease: MemoryLease) -> None:
        """Revokes the lease; see `MemoryLease.revoke`."""
        lease.pause_keep_alive()
        await self._reach_store()
        self.data.end_lease(lease.id)
        await _answer()

    async def _reach_store(self) -> None:
        # A request takes effect after it is made, and is answered later still, as over a network.
        # Code that relies on more fails in tests.
        await asyncio.sleep(0)
        if self._connected:
            self._notice_rollback()
        self._check_usable()
        if not self._connected:
            raise StoreUnavailableError("the metadata store in memory is disconnected")

    def _notice_rollback(self) -> None:
        if self.data.revision < self._highest_revision:
            self._rolled_back = True

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosedError("the metadata store was closed; open another")
        if self._rolled_back:
            raise StoreRolledBackError(
                f"the metadata store fell back from revision {self._highest_revision}: it was "
                "wiped or restored; restore its newest state, or start with empty data"
            )

    def _news(self, view: WatchView) -> list[Sequence[Changed]]:
        if not self._connected:
            return []
        if self.data.history_reaches(view.revision):
            groups = view.take(self.data.changes_after(view.revision, view.prefix))
            view.advance(self.data.revision)
            return groups
        differences = view.catch_up(self.data.snapshot(view.prefix))
        return [differences] if differences else []

    def _on_change(self) -> None:
        if not self._connected:
            return
        self._notice_rollback()
        self._highest_revision = max(self._highest_revision, self.data.revision)
        for lease in [one for one in self._leases.values() if not self.data.has_lease(one.id)]:
            del self._leases[lease.id]
            lease.lose()
        self._wake_all()

    def _wake_all(self) -> None:
        for wake in list(self._wakes):
            wake.set()


class MemoryLease:
    """A lease whose keep-alives all arrive until they are paused."""

    def __init__(self, store: MemoryStore, lease_id: int, ttl_seconds: int, clock: Clock) -> None:
        self._store = store
        self._id = lease_id
        self._ttl_ms = ttl_seconds * 1000
        self._clock = clock
        self._kept_alive_since_ms = clock.monotonic_ms()
        self._expiry: asyncio.TimerHandle | None = None
        self._lost = False
        self._ended = asyncio.Event()

    @property
    def id(self) -> int:
        return self._id

    async def wait_lost(self) -> None:
        await self._ended.wait()
        if not self._lost:
            raise StoreClosedError("the metadata store was closed; its leases expire")

    async def revoke(self) -> None:
        if not self._lost:
            await self._store.revoke(self)

    def pause_keep_alive(self) -> None:
        if self._expiry is not None:
            return
        kept_alive_ms = self._clock.monotonic_ms() - self._kept_alive_since_ms
        since_last_ms = kept_alive_ms % (self._ttl_ms // KEEP_ALIVES_PER_TTL)
        self._expiry = asyncio.get_running_loop().call_later(
            (self._ttl_ms - since_last_ms) / 1000, self._store.data.end_lease, self._id
        )

    def resume_keep_alive(self) -> None:
        self._kept_alive_since_ms = self._clock.monotonic_ms()
        self._cancel_expiry()

    def lose(self) -> None:
        """Ends the lease as lost: the store has reported that it is gone."""
        self._lost = True
        self._cancel_expiry()
        self._ended.set()

    def abandon(self) -> None:
        """Ends the lease without a report from the store."""
        self._ended.set()

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


async def _answer() -> None:
    await asyncio.sleep(0)
