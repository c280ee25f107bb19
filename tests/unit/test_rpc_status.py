"""A rejection on one side of a channel arrives unchanged on the other."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from tidelog.errors import ErrorCode, InvalidRequestError, TidelogError
from tidelog.rpc.abort import abort
from tidelog.rpc.channels import new_server, open_channel
from tidelog.rpc.status import UnreachableError, from_status

METHOD = "/tidelog.test.Refusing/Call"


async def _ask(error: TidelogError | None) -> UnreachableError | TidelogError:
    """The error that a client gets when the server aborts like this; None: no server listens."""

    async def reject(
        request: bytes,  # noqa: ARG001
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> bytes:
        assert error is not None
        await abort(context, error)

    server = new_server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(reject)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("tidelog.test.Refusing", {"Call": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    if error is not None:
        await server.start()
    address = f"127.0.0.1:{port}"
    try:
        async with open_channel(address) as channel:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call(b"", timeout=5)
            return from_status(raised.value, address)
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_REQUEST, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.INTERNAL]
)
async def test_code_and_message_round_trip(code: ErrorCode) -> None:
    found = await _ask(TidelogError(code, "say what would be right"))
    assert isinstance(found, TidelogError)
    assert (found.code, found.message) == (code, "say what would be right")


async def test_a_stopped_server_is_unreachable() -> None:
    found = await _ask(None)
    assert isinstance(found, UnreachableError)
    assert not found.unresolved


async def test_an_unresolvable_host_name_is_unresolved() -> None:
    async with open_channel("nobody.invalid:1") as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(b"", timeout=30)
    found = from_status(raised.value, "nobody.invalid:1")
    assert isinstance(found, UnreachableError)
    assert found.unresolved


async def test_a_web_server_is_reported_as_not_speaking_grpc() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with open_channel(address) as channel:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call(b"", timeout=5)
        found = from_status(raised.value, address)
    assert isinstance(found, UnreachableError)
    assert "does not speak gRPC (is it the port of a gateway or of metrics?)" in found.reason


async def test_another_kind_of_service_is_reported_as_such() -> None:
    server = new_server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    address = f"127.0.0.1:{port}"
    try:
        async with open_channel(address) as channel:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call(b"", timeout=5)
    finally:
        await server.stop(None)
    found = from_status(raised.value, address)
    assert isinstance(found, InvalidRequestError)
    assert f"{address} does not know the request" in found.message
    assert "name a broker's address" in found.message
