"""The state of a cluster for its local runner: registered services, and those that serve."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tidelog.client import Admin
from tidelog.errors import TidelogError
from tidelog.rpc.channels import open_channel
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.etcd import EtcdStore
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    RUNNING,
    decode_broker,
    decode_controller,
    decode_controller_process,
)
from tidelog_runtime.metadata.store import MetadataStore

_ANSWER_TIMEOUT_SECONDS = 1.0


class ClusterView(Protocol):
    """Methods raise `StoreUnavailableError` if the metadata store does not answer."""

    async def brokers(self) -> Mapping[int, str]:
        """Returns the addresses of the brokers that are registered as running."""

    async def controllers(self) -> Mapping[int, str]:
        """Returns the addresses of the registered controllers, active or not."""

    async def active_controller(self) -> int | None: ...

    async def serving(self, address: str) -> bool:
        """Returns whether the service at this address reports SERVING by the health protocol."""

    async def brokers_known_to(self, broker: str) -> set[str]:
        """Returns addresses of live brokers, from the metadata of the broker at this address."""

    async def close(self) -> None: ...


class StoreView:
    """The state in etcd and in the answers of the health protocol."""

    def __init__(self, store: MetadataStore, cluster: str) -> None:
        self._store = store
        self._keys = Keys(cluster)

    async def brokers(self) -> Mapping[int, str]:
        snapshot = await self._store.snapshot(self._keys.brokers)
        registrations = {
            int(key.removeprefix(self._keys.brokers)): decode_broker(item.value)
            for key, item in snapshot.items.items()
        }
        return {i: r.address for i, r in registrations.items() if r.state == RUNNING}

    async def controllers(self) -> Mapping[int, str]:
        prefix = self._keys.controller_processes
        snapshot = await self._store.snapshot(prefix)
        return {
            int(key.removeprefix(prefix)): decode_controller_process(item.value).address
            for key, item in snapshot.items.items()
        }

    async def active_controller(self) -> int | None:
        item = await self._store.get(self._keys.controller)
        return None if item is None else decode_controller(item.value).controller_id

    async def serving(self, address: str) -> bool:
        async with open_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                answer = await stub.Check(
                    health_pb2.HealthCheckRequest(), timeout=_ANSWER_TIMEOUT_SECONDS
                )
            except grpc.aio.AioRpcError:
                return False  # not started yet, or not a service: the caller polls again
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def brokers_known_to(self, broker: str) -> set[str]:
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_SECONDS), Admin(broker) as asking:
                known = (await asking.describe_cluster()).brokers
        except (TidelogError, TimeoutError):
            return set()  # as in `serving`
        return {one.address for one in known}

    async def close(self) -> None:
        await self._store.close()


def open_view(etcd: str, cluster: str) -> ClusterView:
    store = EtcdStore([etcd], clock=SystemClock(), rng=random.Random())
    return StoreView(store, cluster)


HEALTH_TIMEOUT_SECONDS = 1.0
_QUESTION = b"GET /health HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"


async def answers_http(address: str) -> bool:
    """Returns whether the service answers GET /health with 200."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(_QUESTION % address.encode())
                status = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False  # not started yet: the caller polls again
    return status.split(b" ")[1:2] == [b"200"]
