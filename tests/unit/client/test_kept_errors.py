"""A caller may keep the error of a call: it keeps no gRPC channel, which would make gRPC unusable
in a forked child."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc.aio
import pytest

from tidelog.client.connections import GrpcConnections
from tidelog.errors import TidelogError
from tidelog.rpc.channels import open_channel
from tidelog.rpc.status import UnreachableError
from tidelog.v1 import admin_pb2, broker_pb2, inspect_pb2

SOON_S = 0.1
LONG_MS = 30_000

Call = Callable[[GrpcConnections, str], Awaitable[object]]


async def watch(connections: GrpcConnections, address: str) -> None:
    events = connections.inspected(address).watch_events(inspect_pb2.WatchEventsRequest(), LONG_MS)
    async for _ in events:
        pass


CALLS: dict[str, Call] = {
    "produce": lambda c, a: c.broker(a).produce(broker_pb2.ProduceRequest(), LONG_MS),
    "fetch": lambda c, a: c.broker(a).fetch(broker_pb2.FetchRequest(), LONG_MS),
    "list_offsets": lambda c, a: c.broker(a).list_offsets(broker_pb2.ListOffsetsRequest(), LONG_MS),
    "metadata": lambda c, a: c.broker(a).metadata(broker_pb2.MetadataRequest(), LONG_MS),
    "init_producer_id": lambda c, a: c.broker(a).init_producer_id(
        broker_pb2.InitProducerIdRequest(), LONG_MS
    ),
    "describe_producers": lambda c, a: c.broker(a).describe_producers(
        broker_pb2.DescribeProducersRequest(), LONG_MS
    ),
    "admin": lambda c, a: c.controller(a).call(
        admin_pb2.DeleteTopicRequest(), admin_pb2.DeleteTopicResponse, LONG_MS
    ),
    "watch_events": watch,
    "probe": lambda c, a: c.inspected(a).probe(LONG_MS, patient=False),
    "describe_service": lambda c, a: c.inspected(a).describe_service(
        inspect_pb2.DescribeServiceRequest(), LONG_MS
    ),
    "explain": lambda c, a: c.inspected(a).explain(inspect_pb2.ExplainRequest(), LONG_MS),
}


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """Accepts connections, and answers nothing."""

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@asynccontextmanager
async def server_of_nothing() -> AsyncIterator[str]:
    """Rejects each call, because it has no method."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def cancelled(call: Awaitable[object], _: GrpcConnections) -> None:
    async with asyncio.timeout(SOON_S):
        await call


async def closed(call: Awaitable[object], connections: GrpcConnections) -> None:
    calling = asyncio.ensure_future(call)
    await asyncio.sleep(SOON_S)
    await connections.close()
    await calling


async def rejected(call: Awaitable[object], _: GrpcConnections) -> None:
    await call


class Opened:
    """The channels that the connections open: the objects of gRPC's core, which every other object
    of a channel refers to."""

    def __init__(self) -> None:
        self.cores: list[object] = []

    def open(self, address: str) -> grpc.aio.Channel:
        channel = open_channel(address)
        self.cores.append(channel._channel)  # type: ignore[attr-defined]
        return channel


WAYS = {
    "cancelled": (silent_server, cancelled),
    "closed": (silent_server, closed),
    "rejected": (server_of_nothing, rejected),
}


async def kept_channel(call: str, way: str) -> str:
    """Makes the call fail, and keeps the error. Returns what refers to the channel then; empty:
    nothing does."""
    opened = Opened()
    connections = GrpcConnections(opened.open)
    serve, fail = WAYS[way]
    kept: list[BaseException] = []
    async with serve() as address:
        try:
            await fail(CALLS[call](connections, address), connections)
        except (UnreachableError, TidelogError, TimeoutError) as error:
            kept.append(error)
        await connections.close()
        await asyncio.sleep(SOON_S)
    assert kept or (call, way) == ("probe", "rejected"), f"{call} fails"
    # The list and the argument of `getrefcount`.
    held = sys.getrefcount(opened.cores[0]) > 2
    return f"{call}: {gc.get_referrers(opened.cores[0])}" if held else ""


@pytest.mark.parametrize("way", WAYS)
async def test_a_kept_error_keeps_no_channel(way: str) -> None:
    gc.disable()  # No cycle keeps it either: a collection takes long in a large process.
    try:
        found = await asyncio.gather(*(kept_channel(call, way) for call in CALLS))
    finally:
        gc.enable()
    assert [keeper for keeper in found if keeper] == []
