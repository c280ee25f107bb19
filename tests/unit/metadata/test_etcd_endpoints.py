"""Which requests are retried and which never are, shown by a counting server on loopback."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from aetcd import rpc
from aetcd.rpc.rpc_pb2_grpc import add_KVServicer_to_server, add_MaintenanceServicer_to_server

from tidelog.inspection.state_reports import NOT_KNOWN, WITHOUT_MAJORITY
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.etcd import MAX_SNAPSHOT_ATTEMPTS, EtcdStore
from tidelog_runtime.metadata.etcd_endpoints import (
    ATTEMPTS_APART_MS,
    MAX_LATE_ATTEMPTS,
    MAX_OWN_LATENESS_MS,
    MAX_RETRY_PAUSE_MS,
    MIN_FAILED_ATTEMPTS,
    Endpoint,
    EtcdEndpoints,
)
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
    """Fails as configured, then answers."""

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


class Maintenance(rpc.Maintenance):  # type: ignore[misc]  # aetcd has no types
    async def Status(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return rpc.StatusResponse(header=rpc.ResponseHeader(cluster_id=1))


class FirstOfAll(random.Random):
    def randrange(self, *_: Any) -> int:
        return 0


class MovedClock(SystemClock):
    """A clock that is ahead of the machine's by the time that the test has let pass."""

    moved_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.moved_ms


async def probe_until_lost(store: EtcdStore, clock: MovedClock) -> None:
    for _ in range(MIN_FAILED_ATTEMPTS):
        clock.moved_ms += ATTEMPTS_APART_MS
        await store.probe_members()


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


async def test_a_read_is_retried(etcd: CountingEtcd, store: EtcdStore) -> None:
    etcd.failures = [UNAVAILABLE, UNAVAILABLE]
    assert await store.get("/a") is None
    assert etcd.requests == 3


async def test_a_transaction_is_never_retried(etcd: CountingEtcd, store: EtcdStore) -> None:
    etcd.failures = [UNAVAILABLE]
    with pytest.raises(StoreUnavailableError, match="leader changed"):
        await store.transact(Transaction([], [Put("/a", b"1")]))
    assert etcd.requests == 1


async def test_a_rejected_read_is_not_retried(etcd: CountingEtcd, store: EtcdStore) -> None:
    etcd.failures = [(grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied")]
    with pytest.raises(StoreError, match="permission denied"):
        await store.get("/a")
    assert etcd.requests == 1


async def test_a_snapshot_restarts_after_a_compaction(etcd: CountingEtcd, store: EtcdStore) -> None:
    etcd.failures = [COMPACTED]
    assert (await store.snapshot("/")).revision == 7


async def test_a_snapshot_does_not_restart_forever(etcd: CountingEtcd, store: EtcdStore) -> None:
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
async def test_an_invalid_address_is_rejected(address: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        EtcdStore([address], clock=SystemClock(), rng=random.Random(1))


async def test_an_empty_address_list_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least one"):
        EtcdStore([], clock=SystemClock(), rng=random.Random(1))


async def test_the_unresponsive_one_of_two_members_is_known_until_it_answers(
    etcd: CountingEtcd,
) -> None:
    server = grpc.aio.server()
    add_KVServicer_to_server(etcd, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    there, away = f"127.0.0.1:{port}", "127.0.0.1:1"
    clock = MovedClock()
    store = EtcdStore([there, away], clock=clock, rng=random.Random(1))
    await store.get("/a")
    await probe_until_lost(store, clock)
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


ON_TIME, LATE = MAX_OWN_LATENESS_MS - 1, MAX_OWN_LATENESS_MS


@pytest.mark.parametrize(
    ("attempts", "lost_since_ms"),
    [
        ([(0, ON_TIME)], None),
        ([(0, ON_TIME), (ATTEMPTS_APART_MS - 1, ON_TIME)], None),  # of one request
        ([(0, ON_TIME), (ATTEMPTS_APART_MS, ON_TIME)], 0),
        ([(0, LATE), (2_000, LATE)], None),
        ([(0, LATE), (2_000, ON_TIME), (4_000, LATE)], None),
        ([(0, LATE), (2_000, ON_TIME), (4_000, ON_TIME)], 2_000),
        # A process that is permanently late.
        ([(2_000 * n, LATE) for n in range(MAX_LATE_ATTEMPTS + 2)], 2_000 * MAX_LATE_ATTEMPTS),
    ],
)
async def test_a_member_is_lost_after_several_attempts_of_a_timely_process(
    attempts: list[tuple[int, int]], lost_since_ms: int | None
) -> None:
    endpoint = Endpoint("127.0.0.1:1")
    for began_ms, late_ms in attempts:
        endpoint.failed(began_ms, late_ms, "no answer")
    assert endpoint.lost_since_ms == lost_since_ms
    endpoint.answered()
    endpoint.failed(60_000, ON_TIME, "no answer")
    assert endpoint.lost_since_ms is None, "it begins from scratch"
    await endpoint.close()


async def test_a_process_paused_during_its_attempts_calls_no_member_lost() -> None:
    """Its timeouts expire whatever the member does."""
    clock = MovedClock()
    endpoints = EtcdEndpoints(
        ["127.0.0.1:1", "127.0.0.1:2"], clock=clock, rng=FirstOfAll(), request_timeout_ms=1_000
    )
    away = endpoints._endpoints[1]

    async def paused_call(timeout_ms: int) -> bool:  # noqa: ARG001  # named as the original
        await asyncio.sleep(0)
        clock.moved_ms += ATTEMPTS_APART_MS
        return False

    away.connect = paused_call  # type: ignore[method-assign]
    for _ in range(MAX_LATE_ATTEMPTS):
        await endpoints.probe_others(lambda *_: asyncio.sleep(0))
    assert [member.unreachable_ms for member in endpoints.members] == [NOT_KNOWN, NOT_KNOWN]
    await endpoints.close()


@pytest.mark.parametrize(
    ("status", "says"), [(Maintenance(), WITHOUT_MAJORITY), (None, "check that it runs")]
)
async def test_a_member_without_its_peers_reports_itself_as_alive(
    etcd: CountingEtcd, status: Maintenance | None, says: str
) -> None:
    """It cannot answer requests that need a majority, but it can report its own status."""
    server = grpc.aio.server()
    add_KVServicer_to_server(etcd, server)
    if status is not None:
        add_MaintenanceServicer_to_server(status, server)
    alone = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    clock = MovedClock()
    store = EtcdStore(["127.0.0.1:1", alone], clock=clock, rng=FirstOfAll())
    late = (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
    etcd.failures = [late] * MIN_FAILED_ATTEMPTS
    await probe_until_lost(store, clock)
    [member] = [member for member in store.members() if member.address == alone]
    assert member.unreachable_ms >= 0
    assert says in member.problem
    await store.close()
    await server.stop(0)
