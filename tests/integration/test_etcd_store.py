"""The etcd store while etcd, or the connection to it, fails."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from integration.tcp_proxy import TcpProxy
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.local import ClusterError
from tidelog_runtime.local.addresses import choose_port
from tidelog_runtime.local.etcd_member import LocalEtcd, find_etcd
from tidelog_runtime.metadata.etcd import EtcdStore
from tidelog_runtime.metadata.store import (
    Changed,
    CreateRevision,
    MetadataStore,
    Put,
    StoreRolledBackError,
    StoreUnavailableError,
    Transaction,
    TransactionResult,
)

SECONDS_TO_WAIT = 20
REQUEST_TIMEOUT_MS = 1_500
KEY = "/test/a"

Result = TypeVar("Result")
OpenStore = Callable[..., MetadataStore]


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[LocalEtcd]:
    etcd = await LocalEtcd.start(tmp_path / "data", log_path=tmp_path / "log", fsync=False)
    yield etcd
    await etcd.stop()


@pytest.fixture
async def open_store() -> AsyncIterator[OpenStore]:
    stores = []

    def open_store(*addresses: str, seed: int = 1) -> MetadataStore:
        store = EtcdStore(
            addresses,
            clock=SystemClock(),
            rng=random.Random(seed),
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        stores.append(store)
        return store

    yield open_store
    for store in stores:
        await store.close()


@pytest.fixture
async def proxies(etcd: LocalEtcd) -> AsyncIterator[list[TcpProxy]]:
    """Two proxies of the same etcd."""
    proxies = [TcpProxy(etcd.endpoint), TcpProxy(etcd.endpoint)]
    for proxy in proxies:
        await proxy.start()
    yield proxies
    for proxy in proxies:
        await proxy.stop()


async def put(store: MetadataStore, key: str = KEY, lease_id: int = 0) -> TransactionResult:
    return await store.transact(Transaction([], [Put(key, b"1", lease_id)]))


async def following(watch: AsyncIterator[Sequence[Changed]]) -> Sequence[Changed]:
    async with asyncio.timeout(SECONDS_TO_WAIT):
        return await anext(watch)


async def eventually(attempt: Callable[[], Awaitable[Result]]) -> Result:
    """The result of the operation, once the store can be reached."""
    async with asyncio.timeout(SECONDS_TO_WAIT):
        while True:
            try:
                return await attempt()
            except StoreUnavailableError:
                await asyncio.sleep(0.05)


async def one_time_to_live(store: MetadataStore, ttl_seconds: int) -> None:
    """Returns when a lease without a holder, granted now, has expired."""
    key = "/hourglass"
    watch = store.watch(await store.snapshot(key))
    await put(store, key, (lease := await store.grant_lease(ttl_seconds)).id)
    await following(watch)
    await lease.close()  # type: ignore[attr-defined]  # an EtcdLease: lets it expire
    assert (await following(watch))[0].value is None


async def test_a_watch_outlives_a_restart(etcd: LocalEtcd, open_store: OpenStore) -> None:
    store = open_store(etcd.endpoint)
    watch = store.watch(await store.snapshot("/test/"))
    before = (await put(store)).revision
    assert [change.revision for change in await following(watch)] == [before]
    waiting = asyncio.ensure_future(following(watch))
    await etcd.kill()
    await etcd.start_again()
    after = (await eventually(lambda: put(store))).revision
    assert [change.revision for change in await waiting] == [after]


async def test_changes_during_a_watch_outage_arrive_later(
    etcd: LocalEtcd, open_store: OpenStore, proxies: list[TcpProxy]
) -> None:
    watching, writing = open_store(proxies[0].address), open_store(etcd.endpoint)
    watch = watching.watch(await watching.snapshot("/test/"))
    first = (await put(writing)).revision
    assert (await following(watch))[0].revision == first
    await proxies[0].stop()
    missed = [(await put(writing)).revision for _ in range(3)]
    await proxies[0].start()
    assert [(await following(watch))[0].revision for _ in missed] == missed


async def test_a_lease_outlives_a_restart(etcd: LocalEtcd, open_store: OpenStore) -> None:
    store = open_store(etcd.endpoint)
    lease = await store.grant_lease(2)
    await put(store, lease_id=lease.id)
    await etcd.restart()
    await one_time_to_live(open_store(etcd.endpoint), 3)
    assert await store.get(KEY) is not None


async def test_a_lease_is_not_lost_by_etcd_being_away(
    etcd: LocalEtcd, open_store: OpenStore
) -> None:
    lease = await open_store(etcd.endpoint).grant_lease(2)
    waiting = asyncio.ensure_future(lease.wait_lost())
    await etcd.stop()
    done, _ = await asyncio.wait([waiting], timeout=3)
    assert not done
    await etcd.start_again()
    await lease.revoke()
    await waiting


async def test_a_paused_etcd_is_unavailable_within_the_timeout(
    etcd: LocalEtcd, open_store: OpenStore
) -> None:
    store = open_store(etcd.endpoint)
    await put(store)
    watch = store.watch(await store.snapshot("/test/"))
    waiting = asyncio.ensure_future(following(watch))
    etcd.pause()
    requests: list[Callable[[], Awaitable[object]]] = [
        lambda: store.get(KEY),
        lambda: store.snapshot("/test/"),
        lambda: put(store),
        lambda: store.grant_lease(2),
    ]
    started = time.monotonic()
    results = await asyncio.gather(*(request() for request in requests), return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailableError] * len(requests)
    assert time.monotonic() - started < REQUEST_TIMEOUT_MS / 1000 + 1
    etcd.resume()
    await eventually(lambda: put(store))
    await waiting


async def test_an_absent_etcd_is_unavailable(open_store: OpenStore) -> None:
    port = choose_port(None, taken=set(), rng=random.Random())
    store = open_store(f"127.0.0.1:{port}")
    with pytest.raises(StoreUnavailableError, match=str(port)):
        await store.get(KEY)
    with pytest.raises(StoreUnavailableError, match=str(port)):
        await put(store)


@pytest.mark.parametrize("seed", range(4))
async def test_an_endpoint_that_is_dead_from_the_start_does_not_matter(
    etcd: LocalEtcd, open_store: OpenStore, seed: int
) -> None:
    dead = f"127.0.0.1:{choose_port(None, taken=set(), rng=random.Random())}"
    store = open_store(dead, etcd.endpoint, seed=seed)
    result = await store.transact(Transaction([CreateRevision(KEY, 0)], [Put(KEY, b"1")]))
    assert result.succeeded
    watch = store.watch(await store.snapshot("/test/"))
    lease = await store.grant_lease(2)
    await put(store, KEY, lease.id)
    await following(watch)
    await lease.revoke()
    assert (await following(watch))[0].value is None


@pytest.mark.parametrize("how", ["refuses", "hangs"])
async def test_an_endpoint_that_fails_gives_way_to_the_next(
    open_store: OpenStore, proxies: list[TcpProxy], how: str
) -> None:
    store = open_store(*(proxy.address for proxy in proxies))
    lease = await store.grant_lease(3)
    watch = store.watch(await store.snapshot("/test/"))
    await put(store, lease_id=lease.id)
    await following(watch)
    [used] = [proxy for proxy in proxies if proxy.is_used]
    if how == "refuses":
        await used.stop()
    else:
        used.hang()
    assert (await store.get(KEY)) is not None
    revision = (await eventually(lambda: put(store, lease_id=lease.id))).revision
    assert [change.revision for change in await following(watch)] == [revision]
    await one_time_to_live(store, 3)
    assert (await store.get(KEY)) is not None


async def test_a_wiped_etcd_is_noticed_by_watch_and_requests(
    etcd: LocalEtcd, open_store: OpenStore
) -> None:
    store = open_store(etcd.endpoint)
    await put(store)
    watch = store.watch(await store.snapshot("/test/"))
    waiting = asyncio.ensure_future(following(watch))
    await put(store)
    await waiting
    await etcd.stop()
    await asyncio.to_thread(shutil.rmtree, etcd.data_dir)
    await etcd.start_again()
    with pytest.raises(StoreRolledBackError, match="was wiped or restored"):
        await following(watch)
    newcomer = open_store(etcd.endpoint)
    for _ in range(5):
        await put(newcomer)
    with pytest.raises(StoreRolledBackError, match="was wiped or restored"):
        await store.get(KEY)


async def test_a_local_etcd_keeps_its_data_on_other_ports(
    etcd: LocalEtcd, open_store: OpenStore, tmp_path: Path
) -> None:
    await put(open_store(etcd.endpoint))
    await etcd.stop()
    another = await LocalEtcd.start(etcd.data_dir, log_path=tmp_path / "log")
    try:
        assert await open_store(another.endpoint).get(KEY) is not None
    finally:
        await another.stop()


async def test_a_local_etcd_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "member").write_text("not a directory")
    with pytest.raises(ClusterError, match="member"):
        await LocalEtcd.start(tmp_path / "data", log_path=tmp_path / "log")


def test_without_an_etcd_program_the_error_says_where_to_get_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find_no_package(_name: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find_no_package)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ClusterError, match="TIDELOG_ETCD=host:port"):
        find_etcd()
