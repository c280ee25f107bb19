"""Features of the in-memory store beyond the contract: a settable clock, and faults."""

from __future__ import annotations

import asyncio

import pytest

from doubles.memory_data import MAX_HISTORY_REVISIONS, MemoryData
from doubles.memory_store import MemoryStore
from tidelog_runtime.metadata.store import (
    Put,
    StoreRolledBackError,
    StoreUnavailableError,
    Transaction,
)
from unit.metadata.virtual_time import run, virtual_clock

TTL_SECONDS = 3


async def put(store: MemoryStore, key: str = "/a", lease_id: int = 0) -> int:
    return (await store.transact(Transaction([], [Put(key, b"1", lease_id)]))).revision


async def leased(store: MemoryStore, key: str = "/a") -> int:
    lease = await store.grant_lease(TTL_SECONDS)
    await put(store, key, lease.id)
    return lease.id


def test_a_lease_is_kept_alive_indefinitely() -> None:
    async def story() -> None:
        store = MemoryStore(virtual_clock())
        await leased(store)
        await asyncio.sleep(1_000_000)
        assert await store.get("/a") is not None

    run(story())


@pytest.mark.parametrize(
    ("held_seconds", "left_seconds"), [(0, 3), (0.9, 2.1), (1.5, 2.5), (11.75, 2.25)]
)
def test_a_lease_expires_one_time_to_live_after_its_last_keep_alive(
    held_seconds: float, left_seconds: float
) -> None:
    async def story() -> None:
        store = MemoryStore(virtual_clock())
        lease_id = await leased(store)
        await asyncio.sleep(held_seconds)
        store.pause_keep_alive(lease_id)
        await asyncio.sleep(left_seconds - 0.01)
        assert await store.get("/a") is not None
        await asyncio.sleep(0.02)
        assert await store.get("/a") is None

    run(story())


def test_a_lease_can_be_revoked_at_once() -> None:
    async def story() -> None:
        store = MemoryStore(virtual_clock())
        lease = await store.grant_lease(TTL_SECONDS)
        store.expire_lease(lease.id)
        await lease.wait_lost()

    run(story())


def test_the_leases_of_a_closed_store_expire() -> None:
    async def story() -> None:
        data = MemoryData()
        dead, alive = MemoryStore(virtual_clock(), data), MemoryStore(virtual_clock(), data)
        await leased(dead)
        await dead.close()
        assert await alive.get("/a") is not None
        await asyncio.sleep(TTL_SECONDS + 0.01)
        assert await alive.get("/a") is None

    run(story())


def test_a_disconnected_store_is_unavailable() -> None:
    async def story() -> None:
        store = MemoryStore(virtual_clock())
        store.disconnect()
        with pytest.raises(StoreUnavailableError):
            await store.get("/a")
        store.reconnect()
        assert await store.get("/a") is None

    run(story())


def test_a_short_disconnection_costs_no_lease() -> None:
    async def story() -> None:
        store = MemoryStore(virtual_clock())
        await leased(store)
        store.disconnect()
        await asyncio.sleep(TTL_SECONDS - 0.1)
        store.reconnect()
        await asyncio.sleep(100 * TTL_SECONDS)
        assert await store.get("/a") is not None

    run(story())


def test_a_lease_lost_while_disconnected_is_known_after_reconnecting() -> None:
    async def story() -> None:
        store = MemoryStore(virtual_clock())
        lease = await store.grant_lease(TTL_SECONDS)
        waiting = asyncio.create_task(lease.wait_lost())
        store.disconnect()
        await asyncio.sleep(10 * TTL_SECONDS)
        assert not waiting.done()
        store.reconnect()
        await waiting

    run(story())


def test_a_watch_catches_up_after_a_disconnection() -> None:
    async def story() -> None:
        data = MemoryData()
        away, other = MemoryStore(virtual_clock(), data), MemoryStore(virtual_clock(), data)
        watch = away.watch(await away.snapshot("/"))
        away.disconnect()
        waiting = asyncio.ensure_future(anext(watch))
        revision = await put(other)
        await asyncio.sleep(1)
        assert not waiting.done()
        away.reconnect()
        assert [change.revision for change in await waiting] == [revision]

    run(story())


def test_a_wiped_store_is_detected() -> None:
    async def story() -> None:
        store = MemoryStore(virtual_clock())
        await put(store)
        watch = store.watch(await store.snapshot("/"))
        store.data.wipe()
        with pytest.raises(StoreRolledBackError, match="wiped or restored"):
            await anext(watch)
        with pytest.raises(StoreRolledBackError):
            await store.get("/a")

    run(story())


def test_history_is_bounded() -> None:
    async def story() -> None:
        store = MemoryStore(virtual_clock())
        snapshot = await store.snapshot("/")
        put_a = Transaction([], [Put("/a", b"1")])
        for _ in range(MAX_HISTORY_REVISIONS + 1):
            store.data.transact(put_a)
        assert not store.data.history_reaches(snapshot.revision)
        assert store.data.history_reaches(store.data.revision - MAX_HISTORY_REVISIONS // 2)
        [change] = await anext(store.watch(snapshot))
        assert change.revision == store.data.revision

    run(story())
