"""The metadata stores under the contract, each with the helpers that tests need."""

from __future__ import annotations

import random
import uuid
from typing import Protocol

import grpc
from aetcd import rpc

from doubles.memory_data import MemoryData
from doubles.memory_store import MemoryStore
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.etcd import EtcdStore
from tidelog_runtime.metadata.store import MetadataStore


class StoreHarness(Protocol):
    """One store under test, with operations that bypass it."""

    store: MetadataStore
    prefix: str

    def another_client(self) -> MetadataStore:
        """A client of the same data; the test closes it."""

    async def compact(self) -> None:
        """Compacts all revisions up to now."""

    async def take_lease_away(self, lease_id: int) -> None:
        """Ends the lease from outside, without its holder."""

    async def close(self) -> None: ...


class MemoryHarness:
    def __init__(self) -> None:
        self.prefix = "/test/"
        self._data = MemoryData()
        self.store: MetadataStore = self.another_client()

    def another_client(self) -> MetadataStore:
        return MemoryStore(SystemClock(), self._data)

    async def compact(self) -> None:
        self._data.compact(self._data.revision)

    async def take_lease_away(self, lease_id: int) -> None:
        self._data.end_lease(lease_id)

    async def close(self) -> None:
        await self.store.close()


class EtcdHarness:
    def __init__(self, endpoint: str) -> None:
        self.prefix = f"/test-{uuid.uuid4().hex}/"
        self._endpoint = endpoint
        self._channel = grpc.aio.insecure_channel(endpoint)
        self.store: MetadataStore = self.another_client()

    def another_client(self) -> MetadataStore:
        return EtcdStore([self._endpoint], clock=SystemClock(), rng=random.Random(1))

    async def compact(self) -> None:
        kv = rpc.KVStub(self._channel)
        now = await kv.Range(rpc.RangeRequest(key=b"/"))
        await kv.Compact(rpc.CompactionRequest(revision=now.header.revision, physical=True))

    async def take_lease_away(self, lease_id: int) -> None:
        await rpc.LeaseStub(self._channel).LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease_id))

    async def close(self) -> None:
        await self.store.close()
        await self._channel.close()
