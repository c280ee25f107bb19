"""Reaches a `FakeCluster` without sockets, so that virtual time can pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc

from tidelog.client.admin_api import AdminApi
from tidelog.client.connections import BrokerApi
from tidelog.errors import ErrorCode, TidelogError
from tidelog.request_bounds import MAX_REQUEST_BYTES, check_request_bytes
from tidelog.rpc.message_bounds import check_message
from tidelog.rpc.status import UnreachableError
from tidelog.rpc.trace_context import Metadata, carried
from tidelog.v1 import broker_pb2
from unit.client.fake_broker import FakeBroker, FakeCluster

# One-way latency.
LATENCY_MS = 1

_Answer = TypeVar("_Answer")


class _AbortedError(Exception):
    def __init__(self, status: grpc.StatusCode) -> None:
        super().__init__(status.name)
        self.status = status


class _Context:
    async def abort(self, status: grpc.StatusCode, _: str) -> NoReturn:
        raise _AbortedError(status)

    def invocation_metadata(self) -> Metadata | None:
        return carried()


def check_bounds(request: Any) -> None:
    """Raises INVALID_REQUEST, as every server does, for a request beyond the limits."""
    check_message(request)
    if not isinstance(request, broker_pb2.ProduceRequest):
        check_request_bytes(request.DESCRIPTOR.name, request.ByteSize(), MAX_REQUEST_BYTES)


class MemoryConnections:
    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def broker(self, address: str) -> BrokerApi:
        found = [b for b in self._cluster.brokers.values() if b.address == address]
        return _MemoryBroker(found[0] if found else None, address)

    def controller(self, address: str) -> AdminApi:
        raise NotImplementedError(address)

    async def close(self) -> None:
        pass


class _MemoryBroker:
    def __init__(self, broker: FakeBroker | None, address: str) -> None:
        self._broker = broker
        self._address = address

    async def _call(
        self,
        method: Callable[[FakeBroker], Callable[..., Awaitable[_Answer]]],
        request: Any,
        timeout_ms: int,
    ) -> _Answer:
        await asyncio.sleep(LATENCY_MS / 1000)
        if self._broker is None or not self._broker.alive:
            raise UnreachableError(self._address, "nothing listens")
        try:
            # The request is copied, as a socket would do.
            copy = type(request).FromString(request.SerializeToString())
            check_bounds(copy)
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await method(self._broker)(copy, _Context())
        except TimeoutError:
            raise UnreachableError(self._address, "DEADLINE_EXCEEDED") from None
        except _AbortedError as error:
            if error.status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise UnreachableError(self._address, error.status.name) from None
            raise TidelogError(ErrorCode.INTERNAL, error.status.name) from None
        await asyncio.sleep(LATENCY_MS / 1000)
        return answer

    async def produce(
        self, request: broker_pb2.ProduceRequest, timeout_ms: int
    ) -> broker_pb2.ProduceResponse:
        return await self._call(lambda b: b.Produce, request, timeout_ms)

    async def fetch(
        self, request: broker_pb2.FetchRequest, timeout_ms: int
    ) -> broker_pb2.FetchResponse:
        return await self._call(lambda b: b.Fetch, request, timeout_ms)

    async def list_offsets(
        self, request: broker_pb2.ListOffsetsRequest, timeout_ms: int
    ) -> broker_pb2.ListOffsetsResponse:
        return await self._call(lambda b: b.ListOffsets, request, timeout_ms)

    async def metadata(
        self, request: broker_pb2.MetadataRequest, timeout_ms: int
    ) -> broker_pb2.MetadataResponse:
        return await self._call(lambda b: b.Metadata, request, timeout_ms)

    async def init_producer_id(
        self, request: broker_pb2.InitProducerIdRequest, timeout_ms: int
    ) -> broker_pb2.InitProducerIdResponse:
        return await self._call(lambda b: b.InitProducerId, request, timeout_ms)

    async def describe_producers(
        self, request: broker_pb2.DescribeProducersRequest, timeout_ms: int
    ) -> broker_pb2.DescribeProducersResponse:
        return await self._call(lambda b: b.DescribeProducers, request, timeout_ms)
