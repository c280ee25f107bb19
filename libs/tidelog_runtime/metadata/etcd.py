"""The metadata store in etcd, on the generated stubs of `aetcd`.

aetcd's own client knows one endpoint and returns single events. The modules beside this one add
endpoints, watches and leases, as "Metadata" in docs/internals/protocol.md requires them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import grpc
from aetcd import rpc

from tidelog.inspection.state_reports import StoreMember
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.etcd_endpoints import HAS_LEADER, Endpoint, EtcdEndpoints
from tidelog_runtime.metadata.etcd_lease import EtcdLease
from tidelog_runtime.metadata.etcd_messages import (
    CompactedError,
    first_key,
    key_value,
    prefix_end,
    transaction_request,
    transaction_result,
)
from tidelog_runtime.metadata.etcd_watch import EtcdWatch
from tidelog_runtime.metadata.store import (
    Changed,
    KeyValue,
    Lease,
    Snapshot,
    StoreClosedError,
    StoreUnavailableError,
    Transaction,
    TransactionResult,
    check_lease_ttl,
    check_transaction,
    has_put,
)

# Longer than a busy disk occasionally delays etcd's fsync: the outcome of a transaction that times
# out is unknown.
DEFAULT_REQUEST_TIMEOUT_MS = 3_000
SNAPSHOT_PAGE_KEYS = 1_000
# The snapshot starts again if etcd is compacted between two pages.
MAX_SNAPSHOT_ATTEMPTS = 5
# A read that needs only the store's revision may name any key.
_NO_KEY = "/"
# The alarm with which etcd rejects writes for lack of space.
_NO_SPACE = "NOSPACE"
_NO_SPACE_SAID = "etcd has the alarm NOSPACE: its database has reached its quota"


class EtcdStore:
    """A `MetadataStore` over etcd. Create it on the event loop that uses it.

    - `endpoints`: as host:port.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        clock: Clock,
        rng: random.Random,
        request_timeout_ms: int = DEFAULT_REQUEST_TIMEOUT_MS,
    ) -> None:
        self._endpoints = EtcdEndpoints(
            endpoints, clock=clock, rng=rng, request_timeout_ms=request_timeout_ms
        )
        self._leases: set[EtcdLease] = set()

    @property
    def seen_revision(self) -> int:
        return self._endpoints.seen.highest

    def observe_revision(self, revision: int) -> None:
        self._endpoints.seen.observe_revision(revision)

    def members(self) -> tuple[StoreMember, ...]:
        return self._endpoints.members

    async def probe_members(self) -> None:
        request = rpc.RangeRequest(key=_NO_KEY.encode())

        async def send(endpoint: Endpoint, timeout_seconds: float) -> Any:
            return await endpoint.kv.Range(request, timeout=timeout_seconds, metadata=HAS_LEADER)

        # A closed store is reported to its user by other calls.
        with suppress(StoreClosedError):
            await self._endpoints.probe_others(send)

    async def write_problem(self) -> str | None:
        with suppress(StoreClosedError):
            alarms = await self._endpoints.alarms()
            if alarms is not None:
                return _NO_SPACE_SAID if any(_NO_SPACE in alarm for alarm in alarms) else ""
        return None

    async def get(self, key: str) -> KeyValue | None:
        response = await self._range(rpc.RangeRequest(key=key.encode()))
        return key_value(response.kvs[0]) if response.kvs else None

    async def snapshot(self, prefix: str) -> Snapshot:
        for _ in range(MAX_SNAPSHOT_ATTEMPTS):
            try:
                return await self._snapshot_once(prefix)
            except CompactedError:
                continue
        raise StoreUnavailableError(
            f"{prefix} could not be read at one revision in {MAX_SNAPSHOT_ATTEMPTS} attempts: "
            "etcd is compacted faster than it is read; compact less often"
        )

    async def transact(self, transaction: Transaction) -> TransactionResult:
        check_transaction(transaction)
        request = transaction_request(transaction)

        async def send(endpoint: Endpoint, timeout_seconds: float) -> Any:
            return await endpoint.kv.Txn(request, timeout=timeout_seconds, metadata=HAS_LEADER)

        writes = has_put(transaction)
        response = await self._endpoints.write(send, lambda r: writes and r.succeeded)
        return transaction_result(transaction, response)

    def watch(self, snapshot: Snapshot) -> AsyncIterator[Sequence[Changed]]:
        return EtcdWatch(
            self._endpoints,
            snapshot,
            read_snapshot=self.snapshot,
            confirm=lambda: self.get(_NO_KEY),
        ).run()

    async def grant_lease(self, ttl_seconds: int) -> Lease:
        check_lease_ttl(ttl_seconds)

        async def send(endpoint: Endpoint, timeout_seconds: float) -> Any:
            return await endpoint.lease.LeaseGrant(
                rpc.LeaseGrantRequest(TTL=ttl_seconds),
                timeout=timeout_seconds,
                metadata=HAS_LEADER,
            )

        # May be sent again: a lease whose grant got no answer expires by itself.
        response = await self._endpoints.read(send, linearizable=False)
        self._leases = {lease for lease in self._leases if not lease.ended}
        lease = EtcdLease(self._endpoints, response.ID, response.TTL)
        self._leases.add(lease)
        return lease

    async def close(self) -> None:
        # The flag is set first, so that interrupted requests report a closed store.
        self._endpoints.closed = True
        await asyncio.gather(*(lease.close() for lease in self._leases))
        await self._endpoints.close()

    async def _snapshot_once(self, prefix: str) -> Snapshot:
        items: dict[str, KeyValue] = {}
        start, revision = first_key(prefix), 0
        while True:
            page = await self._range(
                rpc.RangeRequest(
                    key=start,
                    range_end=prefix_end(prefix),
                    limit=SNAPSHOT_PAGE_KEYS,
                    revision=revision,
                )
            )
            revision = revision or page.header.revision
            items |= {item.key: item for item in map(key_value, page.kvs)}
            if not page.more:
                return Snapshot(prefix, revision, items)
            start = page.kvs[-1].key + b"\0"

    async def _range(self, request: Any) -> Any:
        async def send(endpoint: Endpoint, timeout_seconds: float) -> Any:
            return await endpoint.kv.Range(request, timeout=timeout_seconds, metadata=HAS_LEADER)

        return await self._endpoints.read(send)


TIMEOUT_SECONDS = 2.0


def put_directly(endpoints: Sequence[str], key: str, value: bytes, lease_id: int) -> None:
    """Puts the key, from any thread. Blocks for at most TIMEOUT_SECONDS per endpoint.

    The put may be made twice. Raises `StoreUnavailableError` if no endpoint accepts it.
    """
    request = rpc.PutRequest(key=key.encode(), value=value, lease=lease_id)
    problem = ""
    for address in endpoints:
        with grpc.insecure_channel(address) as channel:
            try:
                rpc.KVStub(channel).Put(request, timeout=TIMEOUT_SECONDS)
            except grpc.RpcError as error:
                problem = f"{address}: {error}"
            else:
                return
    raise StoreUnavailableError(f"no etcd endpoint accepts a put ({problem})")
