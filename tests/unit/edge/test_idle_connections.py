"""The number of connections per address is bounded, idle ones included. Uses a real server."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest

from tidelog.caller_limits import CallerLimits, Callers
from tidelog.rpc.channels import new_server, open_channel
from tidelog.v1 import broker_pb2 as pb
from tidelog.v1 import broker_pb2_grpc, replica_control_pb2, replica_control_pb2_grpc
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.pressure.idle_connections import (
    MIN_IDLE_MS,
    Connection,
    IdleConnections,
    SocketTable,
    surplus,
)

LIMIT = 4


class Service(broker_pb2_grpc.BrokerServiceServicer):
    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.there = asyncio.Semaphore(0)

    async def Metadata(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        self.there.release()
        await self.go.wait()
        return pb.MetadataResponse()

    Produce = Fetch = ListOffsets = InitProducerId = DescribeProducers = Metadata


class Control(replica_control_pb2_grpc.ReplicaControlServiceServicer):
    def __init__(self, service: Service) -> None:
        self._service = service

    async def Watch(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        self._service.there.release()
        await self._service.go.wait()
        yield replica_control_pb2.WatchResponse()

    LeaderAndIsr = StopReplica = DescribeReplicas = Watch


class Serving:
    def __init__(self, callers: Callers, service: Service, host: str, port: int) -> None:
        self.callers = callers
        self.service = service
        self.address = f"{host}:{port}"
        self.ports = [port]
        self.idle = IdleConnections(callers, self.ports, SystemClock())
        self.table = SocketTable()

    def open(self) -> list[Connection]:
        return self.table.accepted(self.ports, 0)

    async def connect(self, stack: AsyncExitStack, count: int) -> list[grpc.aio.Channel]:
        """Opens clients with one connection each."""
        channels = [
            await stack.enter_async_context(open_channel(self.address)) for _ in range(count)
        ]
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        return channels

    async def step(self) -> None:
        """Run the check after all input has been idle long enough and closed connections are
        gone."""
        await asyncio.sleep(MIN_IDLE_MS / 1000 + 0.1)
        await self.idle.step()
        await asyncio.sleep(0.3)


@asynccontextmanager
async def serving(host: str = "127.0.0.1") -> AsyncIterator[tuple[Serving, AsyncExitStack]]:
    callers = Callers(CallerLimits(max_connections_per_client=LIMIT))
    server, service = new_server(callers), Service()
    broker_pb2_grpc.add_BrokerServiceServicer_to_server(service, server)
    replica_control_pb2_grpc.add_ReplicaControlServiceServicer_to_server(Control(service), server)
    port = server.add_insecure_port(f"{host}:0")
    await server.start()
    try:
        async with AsyncExitStack() as stack:
            on = Serving(callers, service, host, port)
            stack.callback(on.table.close)
            stack.callback(on.idle.close)
            yield on, stack
    finally:
        service.go.set()
        await server.stop(None)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_only_idle_connections_beyond_the_limit_are_closed(
    host: str,
) -> None:
    async with serving(host) as (on, stack):
        channels = await on.connect(stack, LIMIT + 6)
        stubs: list[Any] = [broker_pb2_grpc.BrokerServiceStub(channel) for channel in channels[:2]]
        calls = [stub.Metadata(pb.MetadataRequest()) for stub in stubs]
        control: Any = replica_control_pb2_grpc.ReplicaControlServiceStub(channels[2])
        watching = control.Watch(replica_control_pb2.WatchRequest())
        reading = asyncio.create_task(watching.read())
        for _ in range(3):
            await on.service.there.acquire()
        assert len(on.open()) == LIMIT + 6
        await on.step()
        assert on.callers.rejected["max_connections_per_client"] == 6
        (reached,) = on.callers.reached(SystemClock().monotonic_ms())
        assert (reached.address, reached.value) == (host.strip("[]"), LIMIT)
        # A gRPC client reconnects by itself, so the busy connections are those that existed before.
        on.service.go.set()
        assert all([await call == pb.MetadataResponse() for call in calls])
        assert await reading == replica_control_pb2.WatchResponse()


async def test_closed_connections_stay_closed() -> None:
    async with serving() as (on, _):
        host, port = on.address.split(":")
        pairs = [await asyncio.open_connection(host, int(port)) for _ in range(LIMIT + 6)]
        await asyncio.sleep(0.2)
        assert len(on.open()) == LIMIT + 6
        await on.step()
        assert len(on.open()) == LIMIT
        before = on.callers.rejected["max_connections_per_client"]
        await on.step()
        assert (before, on.callers.rejected["max_connections_per_client"]) == (6, 6)
        for _, writer in pairs:
            writer.close()


async def test_at_the_open_file_limit_connections_are_closed_all_the_same() -> None:
    async with serving() as (on, stack):
        await on.connect(stack, LIMIT + 6)
        await asyncio.sleep(MIN_IDLE_MS / 1000 + 0.1)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
        taken: list[int] = []
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            with pytest.raises(OSError, match="Too many open files"):
                os.listdir("/proc/self/fd")  # noqa: PTH208
            await on.idle.step()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for descriptor in taken:
                os.close(descriptor)
        assert on.callers.rejected["max_connections_per_client"] == 6


def connections(address: str, count: int, idle_ms: int = 10_000) -> list[Connection]:
    return [Connection(n, f"ipv4:{address}:{n}", idle_ms + n) for n in range(count)]


def test_the_longest_idle_connections_are_closed_per_address() -> None:
    found = surplus([*connections("10.0.0.1", 6), *connections("10.0.0.2", 4)], 4, lambda _: False)
    assert found == connections("10.0.0.1", 6)[:3:-1]


def test_neither_busy_nor_recently_active_connections_are_closed() -> None:
    fresh = connections("10.0.0.1", 3, idle_ms=MIN_IDLE_MS - 10)
    idle = connections("10.0.0.1", 3)
    assert surplus([*fresh, *idle], 1, lambda peer: peer == idle[1].peer) == [idle[2], idle[0]]
    assert surplus(fresh, 1, lambda _: False) == []


def test_a_closed_table_finds_nothing_and_touches_no_file() -> None:
    table = SocketTable()
    table.close()
    # These files have the descriptors that the table had.
    others = [os.open(__file__, os.O_RDONLY | os.O_CLOEXEC) for _ in range(2)]
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
                assert table.accepted({port}, 0) == []
        assert all(os.read(other, 3) == b'"""' for other in others)
    finally:
        for other in others:
            os.close(other)
