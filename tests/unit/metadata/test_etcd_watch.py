"""A watch with a live connection and no events, on loopback."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from aetcd import rpc
from aetcd.rpc.rpc_pb2_grpc import add_KVServicer_to_server, add_WatchServicer_to_server

from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata import watch_view
from tidelog_runtime.metadata.etcd import EtcdStore

PATIENCE_SECONDS = 20.0
KEY = b"/test/a"


class MuteEtcd(rpc.KV, rpc.Watch):  # type: ignore[misc]  # aetcd has no types
    """Answers reads; accepts watches and then sends nothing on them."""

    def __init__(self) -> None:
        self.revision = 5
        self.written: list[Any] = []
        self.watches: list[int] = []
        self.began = asyncio.Semaphore(0)

    def _header(self) -> Any:
        return rpc.ResponseHeader(cluster_id=1, revision=self.revision)

    async def Range(self, request: Any, _context: Any) -> Any:  # noqa: N802
        whole = bool(request.range_end)
        return rpc.RangeResponse(header=self._header(), kvs=self.written if whole else [])

    async def Watch(  # noqa: N802
        self, requests: AsyncIterator[Any], _context: Any
    ) -> AsyncIterator[Any]:
        async for request in requests:
            self.watches.append(request.create_request.start_revision)
            self.began.release()
            yield rpc.WatchResponse(header=self._header(), created=True)


@pytest.fixture
async def etcd() -> MuteEtcd:
    return MuteEtcd()


@pytest.fixture
async def store(etcd: MuteEtcd, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EtcdStore]:
    monkeypatch.setattr(watch_view, "FIRST_SILENCE_MS", 20)
    server = grpc.aio.server()
    add_KVServicer_to_server(etcd, server)
    add_WatchServicer_to_server(etcd, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    store = EtcdStore([f"127.0.0.1:{port}"], clock=SystemClock(), rng=random.Random(1))
    yield store
    await store.close()
    await server.stop(0)


@pytest.mark.rule("silent-watch-is-read-again")
async def test_revisions_missing_from_a_silent_watch_are_read(
    etcd: MuteEtcd, store: EtcdStore
) -> None:
    watch = store.watch(await store.snapshot("/test/"))
    changes = asyncio.ensure_future(anext(watch))
    await etcd.began.acquire()
    etcd.revision = 7
    etcd.written = [rpc.KeyValue(key=KEY, value=b"1", create_revision=7, mod_revision=7)]
    await store.get("/elsewhere")

    async with asyncio.timeout(PATIENCE_SECONDS):
        (change,) = await changes
        assert (change.key, change.revision) == (KEY.decode(), 7)
        # The watch continues from there.
        again = asyncio.ensure_future(anext(watch))
        await etcd.began.acquire()
    assert etcd.watches == [5, 7]
    again.cancel()
    await asyncio.wait([again])


async def test_a_watch_without_pending_changes_is_not_silent(
    etcd: MuteEtcd, store: EtcdStore
) -> None:
    watch = store.watch(await store.snapshot("/test/"))
    changes = asyncio.ensure_future(anext(watch))
    for _ in range(10):
        await asyncio.sleep(0.02)
        await store.get("/elsewhere")
    assert etcd.watches == [5]
    changes.cancel()
    await asyncio.wait([changes])
