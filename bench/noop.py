"""The ceiling: a unary gRPC call that does nothing, with raw bytes, in two processes."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import uvloop

from tidelog.rpc.channels import new_server, open_channel

METHOD = "/tidelog.bench.Noop/Call"
IN_FLIGHT = 8
# The parameters of C, the ceiling of all comparisons.
MESSAGE_BYTES = 64 << 10


async def _noop(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:  # noqa: ARG001
    return b""


async def serve() -> None:
    """Prints its port, and serves until it is killed."""
    server = new_server()
    service, _, method = METHOD.strip("/").partition("/")
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(_noop)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()


@asynccontextmanager
async def noop_server() -> AsyncIterator[str]:
    """A server process; yields its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.noop", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def ceiling_mb_per_second(address: str, message_bytes: int, seconds: float) -> float:
    """Returns the throughput of messages of one size, `IN_FLIGHT` at a time, in 10^6 bytes per
    second."""
    message = bytes(message_bytes)
    async with open_channel(address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        await call(message)
        calls = 0
        end = time.perf_counter() + seconds

        async def call_repeatedly() -> None:
            nonlocal calls
            while time.perf_counter() < end:
                await call(message)
                calls += 1

        started = time.perf_counter()
        await asyncio.gather(*(call_repeatedly() for _ in range(IN_FLIGHT)))
        return calls * message_bytes / (time.perf_counter() - started) / 1e6


if __name__ == "__main__":
    uvloop.run(serve())
