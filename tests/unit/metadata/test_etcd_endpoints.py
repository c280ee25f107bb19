"""What is sent again and what never is, shown by a server on loopback that counts."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from aetcd import rpc
from aetcd.rpc.rpc_pb2_grpc import add_KVServicer_to_server

from tidelog.inspection.model import NOT_KNOWN
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.etcd import MAX_SNAPSHOT_ATTEMPTS, EtcdStore
from tidelog_runtime.metadata.etcd_endpoints import MAX_RETRY_PAUSE_MS, EtcdEndpoints
from tidelog_runtime.metadata.store import (
    Put,
    StoreError,
    StoreUnavailableError,
    Transaction,
)

Failure = tuple[grpc.StatusCode, str]
UNAVAILABLE: Failure = (grpc.StatusCode.UNAVAILABLE, "etcdserver: leader changed")
COMPACTED: Failure = (grpc.StatusCode.OUT_OF_RANGE, "required revision has been compacted")


class CountingEtcd(rpc.KV):  # type: ignore[misc]  # aetcd has no types
    """Fails as it is told to, then answers."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.requests = 0

    async def _count(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self.requests += 1
        if self.failures:
            await context.abort(*self.failures.pop(0))

    async def Range(  # noqa: N802
        self, _request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Any:
        await self._count(context)
        return rpc.RangeResponse(header=rpc.ResponseHeader(cluster_id=1, revision=7))

    async def Txn(  # noqa: N802
        self, _request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Any:
        await self._count(context)
        header = rpc.ResponseHeader(cluster_id=1, revision=7)
        return rpc.TxnResponse(header=header, succeeded=True)


@pytest.fixture
def etcd() -> CountingEtcd:
    return CountingEtcd()


@pytest.fixture
async def store(etcd: CountingEtcd) -> AsyncIterator[EtcdStore]:
    server = grpc.aio.server()
    add_KVServicer_to_server(etcd, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    store = EtcdStore(
        [f"127.0.0.1:{port}"], clock=SystemClock(), rng=random.Random(1), request_timeout_ms=5_000
    )
    yield store
    await store.close()
    await server.stop(0)


async def test_a_read_is_sent_again(etcd: CountingEtcd, store: EtcdStore) -> None:
    etcd.failures = [UNAVAILABLE, UNAVAILABLE]
    assert await store.get("/a") is None
    assert etcd.requests == 3


async def test_a_transaction_is_never_sent_again(etcd: CountingEtcd, store: EtcdStore) -> None:
    etcd.failures = [UNAVAILABLE]
    with pytest.raises(StoreUnavailableError, match="leader changed"):
        await store.transact(Transaction([], [Put("/a", b"1")]))
    assert etcd.requests == 1


async def test_a_refused_read_is_not_sent_again(etcd: CountingEtcd, store: EtcdStore) -> None:
    etcd.failures = [(grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied")]
    with pytest.raises(StoreError, match="permission denied"):
        await store.get("/a")
    assert etcd.requests == 1


async def test_a_snapshot_begins_again_after_a_compaction(
    etcd: CountingEtcd, store: EtcdStore
) -> None:
    etcd.failures = [COMPACTED]
    assert (await store.snapshot("/")).revision == 7


async def test_a_snapshot_does_not_begin_again_for_ever(
    etcd: CountingEtcd, store: EtcdStore
) -> None:
    etcd.failures = [COMPACTED] * (MAX_SNAPSHOT_ATTEMPTS + 1)
    with pytest.raises(StoreUnavailableError, match="compact less often"):
        await store.snapshot("/")
    assert etcd.requests == MAX_SNAPSHOT_ATTEMPTS


async def test_pauses_grow_and_are_bounded() -> None:
    endpoints = EtcdEndpoints(
        ["127.0.0.1:1"], clock=SystemClock(), rng=random.Random(1), request_timeout_ms=1_000
    )
    pauses = [endpoints.pause_ms(failures) for failures in range(1, 1_000)]
    assert pauses[0] < pauses[3] < pauses[9]
    assert max(pauses) <= MAX_RETRY_PAUSE_MS
    await endpoints.close()


@pytest.mark.parametrize("address", ["http://127.0.0.1:2379", "127.0.0.1", ""])
async def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        EtcdStore([address], clock=SystemClock(), rng=random.Random(1))


async def test_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        EtcdStore([], clock=SystemClock(), rng=random.Random(1))


async def test_of_two_members_the_one_that_does_not_answer_is_known_and_known_again(
    etcd: CountingEtcd,
) -> None:
    server = grpc.aio.server()
    add_KVServicer_to_server(etcd, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    there, away = f"127.0.0.1:{port}", "127.0.0.1:1"
    store = EtcdStore([there, away], clock=SystemClock(), rng=random.Random(1))
    await store.get("/a")
    await store.probe_members()
    found = {member.address: member for member in store.members()}
    assert found[there].unreachable_ms == NOT_KNOWN
    assert found[away].unreachable_ms >= 0
    assert found[away].problem == "no connection"
    etcd.failures = [UNAVAILABLE]
    await store.get("/a")
    found = {member.address: member for member in store.members()}
    assert (found[there].unreachable_ms, found[there].problem) == (NOT_KNOWN, "")
    await store.close()
    await server.stop(0)
