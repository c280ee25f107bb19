"""Bounds on answers that their clients do not receive: bytes, and time. Uses a real server, and a
client that reads nothing."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from tidelog import unsent_answers
from tidelog.caller_limits import CallerLimits, Callers
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.admission import answer_of_call
from tidelog.rpc.channels import new_server, open_channel
from tidelog.rpc.status import from_status
from tidelog.unsent_answers import (
    ANSWER_LIMITS,
    RESERVED_BYTES,
    UNSENT_BYTES,
    UNSENT_BYTES_PER_CLIENT,
    CallAnswer,
    UnsentAnswers,
)
from tidelog.v1 import broker_pb2, broker_pb2_grpc
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.pressure.idle_connections import IdleConnections

SIZE = 100 << 10


class Broker(broker_pb2_grpc.BrokerServiceServicer):
    async def Metadata(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        assert answer_of_call() is not None
        return broker_pb2.MetadataResponse(cluster_id="a" * SIZE)

    async def Produce(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        result = broker_pb2.ProducePartitionResult(topic="a" * SIZE)
        return broker_pb2.ProduceResponse(partitions=[result])

    Fetch = ListOffsets = InitProducerId = DescribeProducers = Metadata


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _header(name: str, value: str) -> bytes:
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class NonReader:
    """An HTTP/2 client that opens no window for answers."""

    def __init__(self, address: str, writer: asyncio.StreamWriter) -> None:
        self._authority = address
        self._writer = writer
        self._streams = iter(range(1, 1000, 2))
        settings = struct.pack(">HI", 4, 0)
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        writer.write(preface + _frame(4, 0, 0, settings) + _frame(4, 1, 0, b""))

    def call(self, method: str) -> None:
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": f"/tidelog.v1.BrokerService/{method}",
            ":authority": self._authority,
            "content-type": "application/grpc",
            "te": "trailers",
        }
        stream = next(self._streams)
        block = b"".join(_header(*each) for each in headers.items())
        self._writer.write(_frame(1, 4, stream, block) + _frame(0, 1, stream, bytes(5)))


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Callers, NonReader, asyncio.StreamReader, Any]]:
    callers = Callers(CallerLimits())
    server = new_server(callers)
    broker_pb2_grpc.add_BrokerServiceServicer_to_server(Broker(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    idle = IdleConnections(callers, [port], SystemClock())
    checking = asyncio.create_task(_check(idle))
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            stub = broker_pb2_grpc.BrokerServiceStub(channel)
            yield callers, NonReader(f"127.0.0.1:{port}", writer), reader, stub
    finally:
        checking.cancel()
        writer.close()
        await server.stop(None)
        idle.close()


async def _check(idle: IdleConnections) -> None:
    while True:
        await asyncio.sleep(0.1)
        await idle.step()


async def until(callers: Callers, size: int) -> None:
    async with asyncio.timeout(10):
        while callers.answers.size // SIZE != size:  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(0.02)


async def test_answers_count_until_they_are_received() -> None:
    async with serving() as (callers, client, _, stub):
        await stub.Metadata(broker_pb2.MetadataRequest())
        await until(callers, 0)
        for _ in range(3):
            client.call("Metadata")
        await until(callers, 3)
    await until(callers, 0)
    assert callers.answers.overdue(10**12) == []


@pytest.mark.parametrize("limit", [UNSENT_BYTES_PER_CLIENT, UNSENT_BYTES])
async def test_an_answer_without_room_is_rejected_unless_its_call_had_an_effect(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setitem(ANSWER_LIMITS, limit, 5 * SIZE // 2)
    async with serving() as (callers, client, _, stub):
        client.call("Metadata")
        client.call("Metadata")
        await until(callers, 2)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Metadata(broker_pb2.MetadataRequest())
        error = from_status(caught.value, "broker")
        assert isinstance(error, TidelogError)
        assert error.code is ErrorCode.TOO_MANY_REQUESTS
        assert f"({limit})" in error.message
        assert callers.rejected[limit] == 1
        assert len((await stub.Produce(broker_pb2.ProduceRequest())).partitions) == 1


async def test_a_connection_that_takes_no_answer_in_time_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as (callers, client, reader, stub):
        client.call("Metadata")
        await until(callers, 1)
        monkeypatch.setattr(unsent_answers, "ANSWER_TIMEOUT_MS", 300)
        async with asyncio.timeout(10):
            while await reader.read(1 << 16):
                pass
        await until(callers, 0)
        assert callers.rejected["answer_timeout_s"] == 1
        # The connections of other clients stay.
        await stub.Metadata(broker_pb2.MetadataRequest())


def test_an_address_without_unsent_answers_has_room_when_others_use_up_the_total() -> None:
    answers = UnsentAnswers(lambda *_: None)
    for address in ("a", "b"):
        held = CallAnswer(answers, address, address)
        held.grow(ANSWER_LIMITS[UNSENT_BYTES_PER_CLIENT])
        assert held.room() == 0
    other = CallAnswer(answers, "c", "c")
    assert other.room() == RESERVED_BYTES
    other.grow(RESERVED_BYTES)
    assert other.room() < 0
